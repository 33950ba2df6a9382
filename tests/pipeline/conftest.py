"""Laws are checked without a time limit an example: these machines are shared."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
