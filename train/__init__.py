"""DDP: objective, loop, evaluation, checkpoints; imports `shards` only."""
