"""Networks that come with the trainer."""
