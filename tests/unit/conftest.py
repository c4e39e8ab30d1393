"""What holds for every unit test: it leaves no thread of ours behind, which would go on during the tests after it."""

import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        return [one.name for one in set(threading.enumerate()) - before if one.name.startswith("headgate")]

    wait_until(lambda: not left(), f"threads to end: {left()}")
