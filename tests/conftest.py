"""Settings for all tests: property tests repeat themselves exactly and are never judged by time."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headgate",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headgate")

# A shell that runs us in the background has it ignored, and so would every process that we start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
