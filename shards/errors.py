"""What can go wrong, as two kinds.

DataError      something on disk is not what it must be (a feature file, a workbook cell, a shard)
ConfigError    options that cannot work together, refused before any work starts

A message says what is wrong, the value found, where it is, and what to do.
"""


class DataError(Exception):
    """Something read from disk is missing, damaged or contradicts the rest."""


class ConfigError(ValueError):
    """Options that cannot work together; the message says the consequence and the cure."""
