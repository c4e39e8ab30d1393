"""A feed that hands over changes of single rules: what is in force is always a version that somebody named."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headgate.limiter.limit import Limit, Unit
from headgate.rules import saved_place, snapshot
from headgate.rules.changes import Change, Delete, Put, changed
from headgate.rules.feed import ChangesOf, Outcome
from headgate.rules.model import RuleContent
from headgate.rules.problems import OtherVersion
from headgate.rules.ruleset import Domain
from headgate.rules.saved_domain import encode_domain

from tests.support.waiting import until
from tests.unit.rules.test_rules_acceptance import Rig, good

ANN = Put("a", (("user", "ann"),), RuleContent(Limit(3, Unit.MINUTE)))
GONE = Delete("b", (("k", ""),))


def change(rig: Rig, *changes: Change, before: str = "", after: str = "") -> Outcome:
    current = rig.store.current
    made = ChangesOf(
        before or current.version.digest, after or changed(current, changes).version.digest, tuple(changes)
    )
    outcome = asyncio.run(rig.store.change(lambda: made))
    assert outcome is not None
    return outcome


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)}, data_dir=tmp_path)


def test_changes_come_into_force_and_are_saved(rig: Rig, tmp_path: Path) -> None:
    counter = rig.store.current.version.counter
    outcome = change(rig, ANN, GONE)
    assert rig.limits == {"a:k": 1, "a:user=ann": 3}
    assert outcome.version == rig.store.status.version == rig.store.current.version
    assert outcome.version.counter == counter + 1
    assert (rig.store.status.in_sync, rig.store.status.rules) == (True, 2)
    assert snapshot.load(tmp_path).rules.version.digest == rig.store.current.version.digest
    later = Rig(None, data_dir=tmp_path)
    assert later.limits == rig.limits


def test_where_there_are_none_nothing_is_done(rig: Rig) -> None:
    before = rig.store.status
    assert asyncio.run(rig.store.change(lambda: None)) is None
    assert rig.store.status is before


def test_changes_of_another_version_change_nothing(rig: Rig) -> None:
    before = rig.store.current
    with pytest.raises(OtherVersion, match=r"changes of version 00, and .* is in force"):
        change(rig, ANN, before="00")
    with pytest.raises(OtherVersion, match="and not to 00 as they say"):
        change(rig, ANN, after="00")
    assert rig.store.current is before
    change(rig, ANN)
    with pytest.raises(OtherVersion):
        change(rig, GONE, before=before.version.digest)
    assert rig.limits == {"a:k": 1, "b:k": 1, "a:user=ann": 3}


def test_a_whole_source_after_changes_takes_them_back(rig: Rig) -> None:
    version = rig.store.current.version.digest
    change(rig, ANN)
    rig.take({"a.yaml": good("a", 1), "b.yaml": good("b", 1)})
    assert rig.store.current.version.digest == version


def user(number: int) -> Put:
    return Put("a", (("user", f"u{number}"),), RuleContent(Limit(3, Unit.MINUTE)))


def test_changes_come_into_force_while_their_domain_is_written_as_a_whole(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing is held in its middle until three changes more are in force, and on disk."""
    monkeypatch.setattr(saved_place, "LEAST_CHANGES_BYTES", 1_000)
    encode, begun, go_on = encode_domain, threading.Event(), threading.Event()

    def held(domain: Domain, pause: Callable[[], None]) -> Iterator[bytes]:
        begun.set()
        assert go_on.wait(30)
        yield from encode(domain, pause)

    monkeypatch.setattr(saved_place, "encode_domain", held)

    async def change_one(number: int) -> None:
        current = rig.store.current
        after = changed(current, [user(number)]).version.digest
        await rig.store.change(lambda: ChangesOf(current.version.digest, after, (user(number),)))
        assert rig.store.current.version.digest == after
        assert snapshot.load(tmp_path).rules.version.digest == after

    async def history() -> None:
        watching = asyncio.ensure_future(rig.store.watch())
        folder, number = tmp_path / snapshot.FOLDER, 0
        while not begun.is_set():
            await change_one(number)
            number += 1
            assert number < 30
            if len(list(folder.glob("*.changes"))) == 2:
                await until(begun.is_set, "the writing to begin")
        for more in range(3):
            await change_one(number + more)
        go_on.set()
        await until(lambda: len(list(folder.glob("*.changes"))) == 1, "what led to it to be removed")
        assert snapshot.load(tmp_path).rules.version.digest == rig.store.current.version.digest
        watching.cancel()

    try:
        asyncio.run(history())
    finally:
        go_on.set()
