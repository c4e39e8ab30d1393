"""Settings for all tests: property tests repeat themselves exactly and are never judged by time."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headgate",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headgate")
