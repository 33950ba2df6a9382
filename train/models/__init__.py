"""Networks that come with the trainer; a user's own is named by its class path."""

from train.models.cnn import CNN
from train.models.conformer import Conformer

__all__ = ["CNN", "Conformer"]
