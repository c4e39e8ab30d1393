"""Lines about rules in force: at most one a second, and the last version in the end."""

import asyncio
from typing import Any

import pytest
from headgate.telemetry import paced
from headgate.telemetry.paced import PACED, PacedLogger

from tests.support.clock import ManualClock
from tests.support.waiting import until


class Lines:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.info_of: list[Any] = []
        self.debug_of: list[Any] = []
        self.others: list[str] = []

    def info(self, event: str, **fields: Any) -> None:
        if event == PACED:
            self.info_of.append(fields["version"])
        else:
            self.others.append(event)

    def debug(self, event: str, **fields: Any) -> None:
        self.debug_of.append(fields["version"])


async def test_of_changes_that_come_fast_the_first_and_the_last_have_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "PAUSE_S", 0.2)
    lines = Lines()
    logger = PacedLogger(lines, ManualClock())
    for version in range(50):
        logger.info(PACED, version=version, source="plane")
        logger.info("another", version=version)
    assert lines.info_of == [0]
    assert lines.debug_of == list(range(1, 50)), "all are there for who wants them"
    assert len(lines.others) == 50, "other events are not held back"
    await until(lambda: len(lines.info_of) == 2, "the last version")
    assert lines.info_of == [0, 49]
    logger.info(PACED, version=50, source="plane")
    await until(lambda: lines.info_of == [0, 49, 50], "the last version again")
    await asyncio.sleep(0)
    assert lines.info_of == [0, 49, 50]


async def test_a_process_that_ends_says_the_last_version_too() -> None:
    lines = Lines()
    logger = PacedLogger(lines, ManualClock())
    for version in range(3):
        logger.info(PACED, version=version, source="plane")
    logger.close()
    assert lines.info_of == [0, 2]
    logger.close()
    assert lines.info_of == [0, 2]


async def test_rules_of_another_source_have_a_line_at_once() -> None:
    lines = Lines()
    logger = PacedLogger(lines, ManualClock())
    logger.info(PACED, version=1, source="snapshot")
    logger.info(PACED, version=2, source="plane")
    assert lines.info_of == [1, 2]


def test_before_a_loop_runs_every_line_is_written() -> None:
    lines = Lines()
    logger = PacedLogger(lines, ManualClock())
    for version in range(3):
        logger.info(PACED, version=version, source="snapshot")
    assert lines.info_of == [0, 1, 2]
