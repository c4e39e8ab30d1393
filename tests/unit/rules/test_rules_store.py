"""The directory in force: starting, following real files through every kind of change, and refusing bad ones."""

import asyncio
import concurrent.futures
import os
import shutil
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest
from headgate.clock import Clock, SystemClock
from headgate.rules import compiling, directory, directory_feed, snapshot, store
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import SourceFile
from headgate.rules.store import RuleStore

from tests.support import waiting
from tests.support.clock import ManualClock
from tests.unit.rules.support import rules_text

BAD = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n"


class Log:
    """Remembers what was logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.lines.append((level, event, fields))

    def at(self, *levels: str) -> list[str]:
        return [event for level, event, _ in self.lines if level in levels]


class Rig:
    """A rules directory and its store."""

    def __init__(
        self, tmp_path: Path, *, data_dir: Path | None = None, merge_domains: bool = False, clock: Clock | None = None
    ) -> None:
        self.directory = tmp_path / "rules"
        self.directory.mkdir(exist_ok=True)
        self.log = Log()
        self.store = RuleStore(
            DirectoryFeed(self.directory, clock=clock or SystemClock()),
            clock=clock or SystemClock(),
            data_dir=data_dir,
            merge_domains=merge_domains,
            logger=self.log,
        )

    def write(self, text: str, name: str = "a.yaml") -> None:
        (self.directory / name).write_text(text)

    def opened(self) -> TextIO:
        return open(self.directory / "a.yaml", "w")

    def limit(self) -> int | None:
        return limit_in(self.store.current)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.store.watch())
        try:
            yield
            assert not task.done(), "the watch ended by itself"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def limit_in(rules: RuleSet, key: str = "k") -> int | None:
    match = rules.match("d", [(key, "v")])
    return None if match is None else match.limit.requests_per_unit


def text(requests: int) -> str:
    return rules_text("d", ("k", requests))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    await waiting.until(condition, "what should happen")


class SetTime:
    """The watch sleeps until a test lets time pass; what it does in between takes none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self._due_s = 0.0
        self._asleep: asyncio.Future[None] | None = None
        mine = SimpleNamespace(sleep=self._sleep, get_running_loop=asyncio.get_running_loop)
        monkeypatch.setattr(directory_feed, "asyncio", mine)
        monkeypatch.setattr(directory_feed, "pause", self._pause)
        self._loop = asyncio.get_running_loop()

    def _pause(self, stop: threading.Event, seconds: float) -> bool:
        """In the watch's thread: sleeps on the loop, like the rest of it."""
        asleep = asyncio.run_coroutine_threadsafe(self._sleep(seconds), self._loop)
        while not asleep.done() and not stop.is_set():
            concurrent.futures.wait([asleep], timeout=0.01)
        return stop.is_set()

    async def _sleep(self, seconds: float) -> None:
        self._due_s = self.clock.monotonic() + seconds
        self._asleep = asyncio.get_running_loop().create_future()
        await self._asleep

    async def let_pass(self, seconds: float) -> None:
        """Returns when the watch sleeps beyond that time."""
        end_s = self.clock.monotonic() + seconds
        while True:
            await until(lambda: self._asleep is not None and not self._asleep.done())
            if self._due_s > end_s:
                break
            self._advance_to(self._due_s)
            assert self._asleep is not None
            self._asleep.set_result(None)
        self._advance_to(end_s)

    def _advance_to(self, time_s: float) -> None:
        self.clock.advance(max(0, round((time_s - self.clock.monotonic()) * 1000)))


@pytest.fixture
async def time_set(monkeypatch: pytest.MonkeyPatch) -> SetTime:
    return SetTime(monkeypatch)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.write(text(1))
    return rig


# Starting


def test_the_first_load(rig: Rig) -> None:
    rules = rig.store.load_initial()
    assert rig.store.current is rules
    status = rig.store.status
    assert (status.source, status.in_sync, status.rules, status.domains) == ("directory", True, 1, 1)
    assert (status.accepted, status.rejected, status.last_error, status.last_error_at) == (1, 0, (), None)
    assert status.version.counter == 1
    assert abs(status.loaded_at - time.time()) < 60


def test_before_the_first_load_there_are_no_rules(rig: Rig) -> None:
    assert rig.store.current.match("d", [("k", "v")]) is None
    with pytest.raises(RuntimeError, match="load_initial"):
        _ = rig.store.status


def test_bad_rules_at_the_start_raise_every_problem(rig: Rig) -> None:
    rig.write(BAD)
    rig.write("domain:\n", "b.yaml")
    with pytest.raises(RulesError) as raised:
        rig.store.load_initial()
    assert [(Path(problem.file).name, problem.line) for problem in raised.value.problems] == [
        ("a.yaml", 4),
        ("b.yaml", 1),
    ]


def test_bad_rules_at_the_start_with_a_last_good_snapshot(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first = Rig(tmp_path, data_dir=data_dir)
    first.write(text(7))
    first.store.load_initial()
    again = Rig(tmp_path, data_dir=data_dir)
    again.write(BAD)
    again.store.load_initial()
    assert again.limit() == 7
    status = again.store.status
    assert (status.source, status.in_sync, status.accepted, status.rejected) == ("snapshot", False, 0, 1)
    assert [problem.line for problem in status.last_error] == [4]
    assert "serving_last_good_rules" in again.log.at("error")
    assert "rules_problem" in again.log.at("error")


def test_a_damaged_snapshot_does_not_help(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    rig = Rig(tmp_path, data_dir=data_dir)
    rig.write(BAD)
    data_dir.mkdir()
    (data_dir / snapshot.FILE_NAME).write_bytes(b"garbage")
    with pytest.raises(RulesError):
        rig.store.load_initial()
    assert rig.log.at("warning") == ["rules_snapshot_not_used"]


def test_a_missing_directory_with_a_last_good_snapshot(tmp_path: Path) -> None:
    rig = Rig(tmp_path, data_dir=tmp_path / "data")
    rig.write(text(7))
    rig.store.load_initial()
    shutil.rmtree(rig.directory)
    other = RuleStore(
        DirectoryFeed(rig.directory, clock=SystemClock()), clock=SystemClock(), data_dir=tmp_path / "data", logger=Log()
    )
    other.load_initial()
    assert limit_in(other.current) == 7


def test_an_unchanged_directory_is_loaded_from_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, data_dir=tmp_path / "data")
    rig.write(text(7))
    version = rig.store.load_initial().version
    again = Rig(tmp_path, data_dir=tmp_path / "data")

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("the YAML was read again")

    monkeypatch.setattr(compiling, "read_file", never)
    again.store.load_initial()
    assert again.limit() == 7
    assert again.store.status.source == "directory"
    assert again.store.current.version == version


def test_the_same_files_with_another_setting_are_not_the_same_rules(tmp_path: Path) -> None:
    rig = Rig(tmp_path, data_dir=tmp_path / "data", merge_domains=True)
    rig.write(text(7))
    rig.write(rules_text("d", ("j", 8)), "b.yaml")
    rig.store.load_initial()
    strict = Rig(tmp_path, data_dir=None)
    with pytest.raises(RulesError, match="defined in"):
        strict.store.load_initial()


def test_a_data_dir_that_can_not_be_written_is_logged_and_survived(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    rig = Rig(tmp_path, data_dir=tmp_path / "data")
    rig.write(text(7))
    rig.store.load_initial()
    assert rig.limit() == 7
    assert rig.log.at("error") == ["rules_not_saved"]


# Following


@pytest.mark.slow
async def test_a_change_is_live_within_half_a_second_of_the_write(tmp_path: Path, time_set: SetTime) -> None:
    """Half a second of waiting; reading and compiling come on top, and are as fast as the machine is."""
    rig = Rig(tmp_path, clock=time_set.clock)
    rig.write(text(1))
    rig.store.load_initial()
    async with rig.watching():
        for requests in range(2, 22):
            await time_set.let_pass(0.023 * requests)  # at another moment between two looks each time
            rig.write(text(requests))
            await time_set.let_pass(0.5)
            assert rig.limit() == requests
    assert rig.store.status.accepted == 21
    assert rig.store.status.version.counter == 21


async def test_looking_wakes_the_loop_only_when_something_changed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, woken = [0], [0]
    loop = asyncio.get_running_loop()
    wake = loop.call_soon_threadsafe

    def look(path: Path) -> directory.Signature | None:
        looks[0] += 1
        return directory.signature(path)

    def count(*arguments: Any, **context: Any) -> asyncio.Handle:
        woken[0] += 1
        return wake(*arguments, **context)

    rig.store.load_initial()
    monkeypatch.setattr(directory_feed, "POLL_S", 0.001)
    monkeypatch.setattr(directory_feed, "signature", look)
    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    async with rig.watching():
        await until(lambda: looks[0] >= 50)
        assert woken[0] == 0
        rig.write(text(2))
        await until(lambda: rig.limit() == 2)
        assert woken[0] > 0


@pytest.mark.parametrize(
    ("look_ms", "pause_s"), [(0, 0.25), (20, 0.25), (600, 5.4)], ids=["few files", "a thousand", "a hundred thousand"]
)
async def test_looking_takes_a_tenth_of_the_time_at_most(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, look_ms: int, pause_s: float
) -> None:
    """A hundred thousand files were looked at four times a second, which took most of a core."""
    clock, pauses, look = ManualClock(), list[float](), directory.signature
    feed = DirectoryFeed(rig.directory, clock=clock)
    feed.first()

    def takes_long(path: Path) -> directory.Signature | None:
        clock.advance(look_ms)
        return look(path)

    def pause(_: threading.Event, seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > 3

    monkeypatch.setattr(directory_feed, "signature", takes_long)
    monkeypatch.setattr(directory_feed, "pause", pause)
    assert feed._await_change(threading.Event()) is None
    assert pauses[1:] == pytest.approx([pause_s] * 3)


@pytest.mark.parametrize("replace", [False, True], ids=["in place", "renamed over"])
async def test_what_is_written_all_the_time_comes_into_force_all_the_time(
    tmp_path: Path, time_set: SetTime, replace: bool
) -> None:
    """A file that changes every 60 ms never rests, and no write is in force later than half a second after it."""
    rig = Rig(tmp_path, clock=time_set.clock)
    rig.write(text(1000))
    rig.write(rules_text("e", ("k", 1)), "b.yaml")
    rig.store.load_initial()
    late: list[int] = []
    async with rig.watching():
        for written in range(1001, 1081):
            (renamed_over if replace else in_place)(rig.directory / "a.yaml", text(written))
            await time_set.let_pass(0.06)
            late.append(written - (rig.limit() or 0))
        assert max(late) * 60 <= 500
        await time_set.let_pass(0.5)
        assert rig.limit() == 1080
    assert rig.store.status.rejected == 0


async def test_a_file_that_can_not_be_read_holds_back_its_own_domain_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.write(rules_text("e", ("k", 1)), "b.yaml")
    rig.store.load_initial()
    monkeypatch.setattr(directory_feed, "RETRY_S", 0.01)
    async with rig.watching():
        (rig.directory / "b.yaml").unlink()
        (rig.directory / "b.yaml").symlink_to(rig.directory / "nowhere")
        rig.write(text(2))
        await until(lambda: rig.limit() == 2)
        assert rig.store.current.has_domain("e"), "it keeps its rules"
        assert [item.domain for item in rig.store.status.refused] == ["e"]
        assert not rig.store.status.in_sync
        rejected, looked_at = rig.store.status.rejected, rig.store.feed.looked_at
        await asyncio.sleep(0.05)  # not synchronisation: several attempts pass
        assert (rig.store.status.rejected, rig.store.feed.looked_at) == (rejected, looked_at), "said once, not looked"
        (rig.directory / "b.yaml").unlink()
        rig.write(rules_text("e", ("k", 3)), "b.yaml")
        await until(lambda: rig.store.status.in_sync)
        await until(lambda: rig.store.feed.looked_at > looked_at)


async def test_a_file_of_nobody_that_can_not_be_read_holds_back_all(rig: Rig) -> None:
    rig.store.load_initial()
    async with rig.watching():
        (rig.directory / "new.yaml").symlink_to(rig.directory / "nowhere")
        rig.write(text(2))
        await until(lambda: not rig.store.status.in_sync)
        assert rig.limit() == 1, "it may be of any domain"
        assert rig.store.status.rejected == 0, "not delivered, and not refused"
        (rig.directory / "new.yaml").unlink()
        await until(lambda: rig.limit() == 2)


async def test_the_age_grows_while_the_directory_is_gone_and_not_while_rules_are_refused(
    tmp_path: Path, time_set: SetTime
) -> None:
    rig = Rig(tmp_path, clock=time_set.clock)
    rig.write(text(1))
    rig.store.load_initial()

    def age_s() -> float:
        return time_set.clock.now_ms() / 1000 - rig.store.feed.looked_at

    async with rig.watching():
        await time_set.let_pass(40)
        assert age_s() < 1
        rig.write(BAD)
        await time_set.let_pass(40)
        assert (age_s() < 1, rig.store.status.in_sync) == (True, False)
        os.rename(rig.directory, tmp_path / "away")
        await time_set.let_pass(40)
        assert age_s() > 39
        assert rig.limit() == 1
        os.rename(tmp_path / "away", rig.directory)
        await time_set.let_pass(10)
        assert age_s() < 1


async def test_a_load_is_told_apart_from_rules_that_are_old(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.store.load_initial()
    go_on = threading.Event()
    real = compiling.compile_changed

    def slow(*args: Any, **kwargs: Any) -> compiling.Compiled:
        assert go_on.wait(waiting.PATIENCE_S)
        return real(*args, **kwargs)

    monkeypatch.setattr(store, "compile_changed", slow)
    async with rig.watching():
        assert not rig.store.loading
        rig.write(text(2))
        await until(lambda: rig.store.loading)
        go_on.set()
        await until(lambda: rig.limit() == 2)
        await until(lambda: not rig.store.loading)


def in_place(path: Path, content: str) -> None:
    path.write_text(content)


def renamed_over(path: Path, content: str) -> None:
    new = path.with_name(".a.yaml.tmp")
    new.write_text(content)
    os.replace(new, path)


def as_vim_does(path: Path, content: str) -> None:
    """A probe file, the old file aside, the new one in its place, the old one gone."""
    probe, backup = path.with_name("4913"), path.with_name("a.yaml~")
    probe.touch()
    probe.unlink()
    os.rename(path, backup)
    path.write_text(content)
    backup.unlink()


def as_emacs_does(path: Path, content: str) -> None:
    autosave, backup = path.with_name("#a.yaml#"), path.with_name("a.yaml~")
    autosave.write_text(content)
    shutil.copy(path, backup)
    path.write_text(content)
    autosave.unlink()


def same_size_and_time(path: Path, content: str) -> None:
    """What `cp -p` may do: only the inode and the change time tell."""
    before = path.stat()
    path.write_text(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def removed_and_written(path: Path, content: str) -> None:
    path.unlink()
    path.write_text(content)


def another_name(path: Path, content: str) -> None:
    path.with_name("b.yaml").write_text(content)
    path.unlink()


@pytest.mark.parametrize(
    "change",
    [in_place, renamed_over, as_vim_does, as_emacs_does, same_size_and_time, removed_and_written, another_name],
)
@pytest.mark.slow
async def test_every_way_to_change_a_file(rig: Rig, change: Callable[[Path, str], None]) -> None:
    rig.store.load_initial()
    async with rig.watching():
        change(rig.directory / "a.yaml", text(2))
        await until(lambda: rig.limit() == 2)
    assert rig.store.status.rejected == 0


@pytest.mark.slow
async def test_files_added_and_removed(rig: Rig) -> None:
    rig.store.load_initial()
    async with rig.watching():
        rig.write(rules_text("e", ("k", 1)), "b.yaml")
        await until(lambda: rig.store.current.has_domain("e"))
        (rig.directory / "b.yaml").unlink()
        await until(lambda: not rig.store.current.has_domain("e"))
        assert rig.limit() == 1


async def test_a_bad_file_holds_back_its_domain_alone(rig: Rig) -> None:
    rig.store.load_initial()
    async with rig.watching():
        rig.write(text(2))
        rig.write(BAD.replace("domain: d", "domain: e"), "b.yaml")
        await until(lambda: rig.store.status.rejected == 1)
        assert rig.limit() == 2
        status = rig.store.status
        assert [item.domain for item in status.refused] == ["e"]
        assert not status.in_sync
        assert [(Path(problem.file).name, problem.line) for problem in status.last_error] == [("b.yaml", 4)]
        assert status.last_error_at is not None
        assert ("error", "rules_problem") in [(level, event) for level, event, _ in rig.log.lines]
        (rig.directory / "b.yaml").unlink()
        await until(lambda: rig.store.status.in_sync)
        assert rig.store.status.refused == ()
        assert rig.store.status.accepted == 2


@pytest.mark.slow
async def test_a_bad_change_that_is_taken_back(rig: Rig) -> None:
    rig.store.load_initial()
    before = rig.store.current
    async with rig.watching():
        rig.write(BAD)
        await until(lambda: rig.store.status.rejected == 1)
        rig.write(text(1))
        await until(lambda: rig.store.status.in_sync)
    assert rig.store.current is before
    assert rig.store.status.accepted == 1


async def test_the_same_content_again_does_nothing(rig: Rig) -> None:
    rig.store.load_initial()
    before = rig.store.current
    async with rig.watching():
        os.utime(rig.directory / "a.yaml")
        await until(lambda: "rules_unchanged" in rig.log.at("info"))
    assert rig.store.current is before
    assert rig.store.status.accepted == 1


async def test_a_file_that_is_written_slowly_is_read_when_it_is_whole(tmp_path: Path, time_set: SetTime) -> None:
    """Written in parts, each within the settling time: no part of it is ever looked at."""
    whole = rules_text("d", *[(f"k=v{n}", 2) for n in range(50)], ("k", 2))
    rig = Rig(tmp_path, clock=time_set.clock)
    rig.write(text(1))
    rig.store.load_initial()
    async with rig.watching():
        with rig.opened() as file:
            for start in range(0, len(whole), 200):
                file.write(whole[start : start + 200])
                file.flush()
                await time_set.let_pass(0.09)
        assert rig.limit() == 1
        await time_set.let_pass(0.5)
        assert rig.limit() == 2
    assert rig.store.status.rejected == 0
    assert rig.store.status.accepted == 2
    assert rig.store.status.rules == 51


@pytest.mark.slow
async def test_a_half_written_file_is_refused_and_the_rest_accepted(rig: Rig) -> None:
    rig.store.load_initial()
    whole = text(2)
    async with rig.watching():
        with rig.opened() as file:
            file.write(whole[:-10])
            file.flush()
            await until(lambda: rig.store.status.rejected == 1)
            assert rig.limit() == 1
            file.write(whole[-10:])
        await until(lambda: rig.limit() == 2)


@pytest.mark.slow
async def test_the_directory_vanishes_and_comes_back(rig: Rig) -> None:
    rig.store.load_initial()
    away = rig.directory.with_name("away")
    async with rig.watching():
        os.rename(rig.directory, away)
        await until(lambda: not rig.store.status.in_sync)
        assert (rig.store.status.rejected, rig.log.at("warning")) == (0, ["rules_not_delivered", "rules_problem"])
        assert "can't list the rules directory" in rig.store.status.last_error[0].reason
        assert rig.limit() == 1
        (away / "a.yaml").write_text(text(2))
        os.rename(away, rig.directory)
        await until(lambda: rig.limit() == 2)
        (rig.directory / "a.yaml").unlink()
        await until(lambda: rig.store.status.rejected == 1)
        assert "no rules file" in rig.store.status.last_error[0].reason
        assert rig.limit() == 2


@pytest.mark.slow
async def test_a_file_system_error_is_tried_again_without_a_visible_change(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store.load_initial()
    monkeypatch.setattr(directory_feed, "RETRY_S", 0.01)
    broken, attempts = True, 0

    def read(reader: directory.DirectoryReader) -> Any:
        nonlocal attempts
        attempts += 1
        if broken:
            raise RulesError([], transient=True)
        return real(reader)

    real = directory.DirectoryReader.read
    monkeypatch.setattr(directory.DirectoryReader, "read", read)
    async with rig.watching():
        rig.write(text(2))
        await until(lambda: attempts >= 3)
        assert rig.log.at("warning") == ["rules_not_delivered"], "said once"
        assert rig.store.status.rejected == 0
        broken = False
        await until(lambda: rig.limit() == 2)


@pytest.mark.slow
async def test_the_watch_survives_what_nobody_thought_of(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.store.load_initial()
    calls = 0

    def fails_once(*args: Any, **kwargs: Any) -> compiling.Compiled:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise MemoryError("no more")
        return compiling.compile_changed(*args, **kwargs)

    monkeypatch.setattr(store, "compile_changed", fails_once)
    async with rig.watching():
        rig.write(text(2))
        await until(lambda: rig.limit() == 2)
    assert rig.log.at("exception") == ["rules_watch_failed"]


@pytest.mark.slow
async def test_accepted_changes_are_saved(tmp_path: Path) -> None:
    rig = Rig(tmp_path, data_dir=tmp_path / "data")
    rig.write(text(1))
    rig.store.load_initial()
    async with rig.watching():
        rig.write(text(2))
        await until(lambda: rig.limit() == 2)
        rig.write(BAD)
        await until(lambda: rig.store.status.rejected == 1)
    saved = snapshot.load(tmp_path / "data").rules
    assert limit_in(saved) == 2
    assert saved.version == rig.store.current.version


@pytest.mark.slow
async def test_from_a_snapshot_back_to_the_directory(tmp_path: Path) -> None:
    rig = Rig(tmp_path, data_dir=tmp_path / "data")
    rig.write(text(1))
    rig.store.load_initial()
    rig.write(BAD)
    again = Rig(tmp_path, data_dir=tmp_path / "data")
    again.store.load_initial()
    assert again.store.status.source == "snapshot"
    async with again.watching():
        again.write(text(1))
        await until(lambda: again.store.status.source == "directory")
        assert again.store.status.in_sync
        again.write(text(2))
        await until(lambda: again.limit() == 2)
    assert again.store.status.version.counter == 2


# Under load: no reader ever fails or sees a mixture


class ConfigMap:
    """A directory as Kubernetes mounts it: files are links through `..data`, which is swapped in one rename."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0

    def swap(self, files: dict[str, str]) -> None:
        self._generation += 1
        real = self._directory / f"..generation{self._generation}"
        real.mkdir()
        for name, content in files.items():
            (real / name).write_text(content)
        link = self._directory / "..data_tmp"
        link.symlink_to(real.name)
        os.replace(link, self._directory / "..data")
        for name in files:
            if not (self._directory / name).is_symlink():
                (self._directory / name).symlink_to(f"..data/{name}")
        for old in self._directory.glob("..generation*"):
            if old != real:
                shutil.rmtree(old)


class Hammer:
    """A thread that matches without a pause; every set it sees must be wholly of one generation."""

    def __init__(self, rules_store: RuleStore, read: Callable[[RuleSet], set[int | None]]) -> None:
        self._store = rules_store
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.reads = 0
        self.seen: set[int | None] = set()
        self.mixtures: list[set[int | None]] = []
        self.error: Exception | None = None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                found = self._read(self._store.current)
                self.reads += 1
                self.seen |= found
                if len(found) != 1:
                    self.mixtures.append(found)
        except Exception as error:
            self.error = error

    def __enter__(self) -> "Hammer":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


def two_files(generation: int) -> dict[str, str]:
    many = [(f"k{n}", generation) for n in range(20)]
    return {"a.yaml": rules_text("d", *many), "b.yaml": rules_text("e", *many)}


def both_files(rules: RuleSet) -> set[int | None]:
    found = set()
    for domain in ("d", "e"):
        for key in ("k0", "k7", "k19"):
            match = rules.match(domain, [(key, "v")])
            found.add(None if match is None else match.limit.requests_per_unit)
    return found


@pytest.mark.slow
async def test_configmap_swaps_under_load(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    mount = ConfigMap(rig.directory)
    mount.swap(two_files(1))
    rig.store.load_initial()
    async with rig.watching():
        with Hammer(rig.store, both_files) as hammer:
            for generation in range(2, 7):
                mount.swap(two_files(generation))
                await until(lambda generation=generation: generation in hammer.seen)  # type: ignore[misc]
            await until(lambda: hammer.reads > 100)
    assert hammer.error is None
    assert hammer.mixtures == []
    assert {1, 6} < hammer.seen
    assert None not in hammer.seen


@pytest.mark.slow
async def test_swaps_faster_than_they_can_be_read(tmp_path: Path) -> None:
    """Whatever is picked up on the way, it is one generation; and the last one wins."""
    rig = Rig(tmp_path)
    mount = ConfigMap(rig.directory)
    mount.swap(two_files(1))
    rig.store.load_initial()
    async with rig.watching():
        with Hammer(rig.store, both_files) as hammer:
            for generation in range(2, 25):
                mount.swap(two_files(generation))
                await asyncio.sleep(0.02)
            await until(lambda: both_files(rig.store.current) == {24})
    assert hammer.mixtures == []


@pytest.mark.parametrize("swaps", [1, 1000])
def test_what_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: int
) -> None:
    """The files are read, then the directory is looked at again: a mixture is thrown away, but not for ever."""
    rig = Rig(tmp_path)
    rig.write(text(1))
    rig.write(rules_text("e", ("k", 1)), "b.yaml")
    real, generation = directory.read_source, 1

    def read_and_change(path: str, name: str) -> SourceFile:
        nonlocal generation
        source = real(path, name)
        if generation <= swaps:
            generation += 1
            rig.write(text(generation))
            rig.write(rules_text("e", ("k", generation)), "b.yaml")
        return source

    monkeypatch.setattr(directory, "read_source", read_and_change)
    files = directory.DirectoryReader(rig.directory).read().files
    found = [file.data.decode() for file in files]
    whole = [text(generation), rules_text("e", ("k", generation))]
    assert (found == whole) == (swaps == 1)
    assert all("requests_per_unit" in one for one in found), "each is whole by itself"


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text(1))
    real, changes = directory._read, 0

    def torn(name: str) -> bytes:
        nonlocal changes
        data = real(name)[:10]
        if changes < 3:
            changes += 1
            path.write_text(text(10 * changes))
            return data
        return real(name)

    monkeypatch.setattr(directory, "_read", torn)
    assert directory.read_source(str(path), "a.yaml").data.decode() == text(30)


def test_only_what_changed_is_read_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.write(rules_text("e", ("k", 1)), "b.yaml")
    reader = directory.DirectoryReader(rig.directory)
    first = reader.read().files
    read: list[str] = []
    real = directory.read_source

    def noted(path: str, name: str) -> SourceFile:
        read.append(name)
        return real(path, name)

    monkeypatch.setattr(directory, "read_source", noted)
    os.utime(rig.directory / "a.yaml")
    assert [file is same for file, same in zip(reader.read().files, first, strict=True)] == [True, True]
    assert read == ["a.yaml"]
    rig.write(rules_text("e", ("k", 2)), "b.yaml")
    assert [file is same for file, same in zip(reader.read().files, first, strict=True)] == [True, False]
    assert read == ["a.yaml", "b.yaml"]


async def test_a_linked_directory_is_swapped(tmp_path: Path) -> None:
    """The rules directory itself is a link to a release."""
    for generation in (1, 2):
        release = tmp_path / f"release{generation}"
        release.mkdir()
        (release / "a.yaml").write_text(text(generation))
    link = tmp_path / "current"
    link.symlink_to("release1")
    rules_store = RuleStore(DirectoryFeed(link, clock=SystemClock()), clock=SystemClock(), logger=Log())
    rules_store.load_initial()
    task = asyncio.create_task(rules_store.watch())
    (tmp_path / "new").symlink_to("release2")
    os.replace(tmp_path / "new", link)
    await until(lambda: limit_in(rules_store.current) == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.slow
async def test_a_large_reload_lets_the_loop_run(tmp_path: Path) -> None:
    """Compiling beside the loop gives way: the loop's longest wait stays far below the load's time."""
    rig = Rig(tmp_path)
    rig.write(text(1))
    rig.store.load_initial()
    rig.write(rules_text("d", *[(f"user=u{n}", 5) for n in range(20_000)], ("k", 2)))
    waits: list[float] = []
    async with rig.watching():
        begun = time.monotonic()
        while rig.limit() != 2:
            before = time.monotonic()
            assert before - begun < waiting.PATIENCE_S
            await asyncio.sleep(0.001)
            waits.append(time.monotonic() - before)
        took_s = time.monotonic() - begun
    # Measured by the load itself, which a busy machine makes longer too.
    assert statistics.median(waits) < took_s / 20
    assert rig.store.status.rules == 20_001


async def test_a_cancelled_watch_ends_a_load_that_is_under_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write(text(1))
    rig.store.load_initial()
    task = asyncio.create_task(rig.store.watch())
    rig.write(rules_text("d", *[(f"user=u{n}", 5) for n in range(20_000)]))
    await until(lambda: any(thread.name.startswith("headgate-rules") for thread in threading.enumerate()))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: not any(thread.name.startswith("headgate-rules") for thread in threading.enumerate()))
    assert rig.limit() == 1
