import os
import signal

import pytest
from headgate.build import BUILD

from tests.support.properties import register_profiles

register_profiles()

# A shell that runs us in the background has it ignored, and so would every process that we start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

COMPILED = BUILD == "compiled"


def pytest_configure(config: pytest.Config) -> None:
    """`make test-compiled` says what it is to be run on: else it could pass on the source, and show nothing."""
    wanted = os.environ.get("HEADGATE_TEST_BUILD")
    if wanted is not None and wanted != BUILD:
        raise pytest.UsageError(f"these tests are to run on the build {wanted!r}, and this one is {BUILD!r}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is marked `pure` replaces parts of compiled classes, which call each other without asking for them."""
    for item in items if COMPILED else ():
        marker = item.get_closest_marker("pure")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"not on the compiled build: {marker.args[0]}"))
