"""Roots that follow each other through a real PostgreSQL: who waits for an entry is woken, and all know everybody."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import structlog
from headgate.clock import SystemClock
from headgate.plane import shared_root
from headgate.plane.database import Sqlite, StoreUnavailable
from headgate.plane.entry import FollowerState, RuleChange
from headgate.plane.mirrored import Mirrored
from headgate.plane.plane import Plane
from headgate.plane.postgresql import Postgresql
from headgate.plane.rule_log import Author, RuleLog
from headgate.plane.shared_root import SharedRoot
from headgate.plane.staging import ChangeCall

from tests.support.waiting import PATIENCE_S, until

ANN = ChangeCall(Author("ann", "because", 1_000), now=True)
RULE = RuleChange("edge", (("user", "ann"),), b'{"rate_limit":{"requests_per_unit":5,"unit":"day"}}')


@asynccontextmanager
async def following(url: str, directory: Path) -> AsyncIterator[Plane]:
    clock = SystemClock()
    mirrored = Mirrored(Postgresql(url), Sqlite(directory), clock, lambda: "a", promote=False)
    plane = Plane(RuleLog(mirrored), clock)
    root = SharedRoot(plane, mirrored, directory.name, random.Random(1), structlog.get_logger())
    task = asyncio.create_task(root.follow())
    yield plane
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    plane.close()


@pytest.fixture
async def planes(url: str, tmp_path: Path) -> AsyncIterator[tuple[Plane, Plane]]:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(following(url, tmp_path / name)) for name in ("one", "two")]
        yield one, two


async def test_an_entry_of_another_root_wakes_those_who_wait_at_once(
    planes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_root, "LOOK_S", PATIENCE_S)
    one, two = planes
    await until(lambda: one.age_ms() < PATIENCE_S * 1000 and two.age_ms() < PATIENCE_S * 1000, "both to have looked")
    # Twice: the first may be what `two` finds when it begins to listen.
    for changes in ([RULE], [RuleChange(RULE.domain, RULE.path, None)]):
        moved = two.moved
        changed = await one.change(changes, ANN, "")
        await asyncio.wait_for(moved.wait(), PATIENCE_S / 2)
        assert two.log.position == changed.position
    monkeypatch.undo()
    await one.change([RULE], ANN, "")


async def test_a_follower_of_one_root_is_known_to_all_and_is_one_alone(planes: tuple[Plane, Plane]) -> None:
    one, two = planes
    at_one, at_two = (FollowerState(name, "eu", "1", relay=False) for name in ("n1", "n2"))
    one.reported([at_one])
    two.reported([at_two])
    for plane in planes:
        await until(partial(lambda known: known.everybody() == [at_one, at_two], plane), "everybody")
    assert (one.followers(), two.followers()) == ([at_one], [at_two])
    one.left("n1")
    two.reported([at_one])
    await until(lambda: one.everybody() == two.followers() == [at_one, at_two], "the one that went over")


async def test_a_listener_that_fails_does_not_keep_the_loop_busy(
    planes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[float]()
    one, _ = planes

    def refused(_self: Postgresql, _timeout_s: float) -> None:
        looks.append(one.clock.monotonic())
        raise StoreUnavailable("too many connections")

    monkeypatch.setattr(Postgresql, "listen", refused)
    await until(lambda: len(looks) > 4, "some looks")
    assert looks[-1] - looks[0] > shared_root.LOOK_S / 2
