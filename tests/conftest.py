"""Settings for all tests: property tests repeat themselves exactly and are never judged by time."""

from tests.support.properties import register_profiles

register_profiles()
