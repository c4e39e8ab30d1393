"""Settings for all tests: property tests repeat themselves exactly and are never judged by time."""

from hypothesis import settings

settings.register_profile("headgate", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("headgate")
