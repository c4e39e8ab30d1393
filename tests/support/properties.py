"""How many examples a property test tries: all of them in `make test`, a tenth in the fast loop of `make unit`; where a
test has a longer form, those in `make verify`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def examples_of(usual: int, long: int) -> pytest.MarkDecorator:
    """Run a test with so many examples, its argument `count`, in `make test`, and with so many in `make verify`."""
    return pytest.mark.parametrize("count", [usual, pytest.param(long, marks=pytest.mark.long)])


def check(count: int, prop: Callable[..., None], **strategies: st.SearchStrategy[Any]) -> None:
    """Try a property on so many examples."""
    examples(count)(given(**strategies)(prop))()
