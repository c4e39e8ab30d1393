"""How many examples a property test tries: all of them in `make test`, a tenth in the fast loop of `make unit`."""

from hypothesis import HealthCheck, settings

USUAL_EXAMPLES = 100
"""Hypothesis's own default."""


def register_profiles() -> None:
    """`headgate`, unless `--hypothesis-profile=fast` is given: examples are the same each time, no time is judged."""
    common = settings(deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("headgate", common, max_examples=USUAL_EXAMPLES)
    settings.register_profile("fast", common, max_examples=USUAL_EXAMPLES // 10)
    settings.load_profile("headgate")


def examples(count: int) -> settings:
    """For a property that needs another number of examples than the usual one; fewer in proportion in the fast loop."""
    usual_now = settings.get_profile(settings.get_current_profile_name()).max_examples
    return settings(max_examples=count * usual_now // USUAL_EXAMPLES)
