"""Reading the log for callers: one at a time, for so long and no longer, and only what is needed."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headgate.clock import SystemClock
from headgate.decision_log import reading, search, segments
from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.reading import LogReading, Patience
from headgate.decision_log.rule_contents import save_content
from headgate.decision_log.segments import SegmentSink
from headgate.decision_log.views import DecisionViews
from headgate.errors import BadRequest, NotReady

from tests.unit.decision_log.test_index import BOUNDS, NOW_MS, SOURCE, Log, batch, caller, record


@pytest.fixture
def log_reading() -> Iterator[LogReading]:
    found = LogReading("test")
    yield found
    found.close()


class Held:
    """A reading that goes on from block to block until it is ended, or let go."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.running = self.most = 0
        self.let_go = threading.Event()
        self.ended = threading.Event()

    def __call__(self, patience: Patience) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.threads.append(threading.current_thread().name)
        try:
            while not self.let_go.is_set():
                patience.check()
            return "read"
        finally:
            self.running -= 1
            self.ended.set()


async def turn(until: Callable[[], bool]) -> None:
    while not until():  # noqa: ASYNC110 - another thread gets there
        await asyncio.sleep(0.001)


async def test_one_at_a_time_and_the_others_wait_in_line(
    log_reading: LogReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "REFUSED_AFTER_S", 0.05)
    held = Held()
    tasks = [asyncio.create_task(log_reading.run(held)) for _ in range(1 + reading.MOST_WAITING)]
    await turn(lambda: held.running == 1)
    began_s = time.monotonic()
    with pytest.raises(NotReady, match="for others"):
        await log_reading.run(held)
    assert time.monotonic() - began_s >= 0.05, "whoever asks without an end is held up"
    held.let_go.set()
    assert await asyncio.gather(*tasks) == ["read"] * len(tasks)
    assert (held.most, set(held.threads)) == (1, {"test_0"})
    assert await log_reading.run(held) == "read", "there is room again"


async def test_a_reading_ends_when_its_caller_has_left(log_reading: LogReading) -> None:
    held = Held()
    task = asyncio.create_task(log_reading.run(held))
    await turn(lambda: held.running == 1)
    task.cancel()
    await turn(held.ended.is_set)
    assert not held.let_go.is_set()


async def test_a_reading_has_a_deadline(monkeypatch: pytest.MonkeyPatch, log_reading: LogReading) -> None:
    monkeypatch.setattr(Patience.__init__, "__defaults__", (0.05,))
    with pytest.raises(NotReady, match="narrower window"):
        await log_reading.run(Held())


def test_a_reading_lets_others_run() -> None:
    """It holds the interpreter for a millisecond at a time, and sleeps for as long."""
    patience = Patience()
    patience.begin()
    began_s, began_cpu_s = time.monotonic(), time.thread_time()
    while time.monotonic() - began_s < 0.2:
        patience.check()
    assert time.thread_time() - began_cpu_s < 0.15


async def test_the_log_is_looked_at_block_by_block_for_whether_to_go_on(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(50):
        log.block([7] * 20)
    view = LogView([tmp_path])
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks > 10:
            raise NotReady("enough")

    view.stats.on_block = look
    with pytest.raises(NotReady, match="enough"):
        view.decisions(RecordFilter(descriptor_hashes=frozenset((hash_of_descriptor("d", caller(7)),))), NOW_MS)
    assert view.stats.blocks <= 10


def test_a_search_makes_do_with_the_nearest_when_half_of_its_time_is_over(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(50):
        log.block([7] * 20)
    want = RecordFilter(descriptor_hashes=frozenset((hash_of_descriptor("d", caller(7)),)))
    patience = Patience()
    view = LogView([tmp_path], stats=patience.stats())
    assert len(view.decisions(want, log.time_ms)) == 1_000, "it has not begun"
    patience._seconds = 1e9
    patience.begin()
    patience._ends_s = time.monotonic() + 1e8
    view = LogView([tmp_path], stats=patience.stats())
    found = view.decisions(want, log.time_ms)
    assert (len(found), view.stats.left_blocks) == (20, 49)
    assert found[-1].time_ms == log.time_ms - 10


def test_segments_of_another_time_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time in their names: those without an index would be read whole."""
    day_ms = 86_400_000
    for day in range(10):
        sink = SegmentSink(tmp_path, SOURCE._replace(run=day), BOUNDS)
        at_ms = NOW_MS + day * day_ms
        sink.decisions(batch([record(day + 1, at_ms, 5)]), at_ms)
        sink.close()
    opened: list[Path] = []
    real = search.SegmentIndex

    def counted(segment: Path, *arguments: object) -> object:
        opened.append(segment)
        return real(segment, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "SegmentIndex", counted)
    at_ms = NOW_MS + 4 * day_ms
    want = RecordFilter(descriptor_hashes=frozenset((5,)), since_ms=at_ms - 1_000, until_ms=at_ms + 1_000)
    assert [found.number for found in LogView([tmp_path]).decisions(want, at_ms)] == [5]
    assert len(opened) == 1


@pytest.mark.parametrize("window_ms", ["86400001", "999999999999999"])
async def test_a_window_is_a_day_at_most(tmp_path: Path, window_ms: str) -> None:
    views = DecisionViews(tmp_path, SystemClock())
    with pytest.raises(BadRequest, match="at most 86400000"):
        await views.explain({"domain": "d", "entries": '[["user", "a"]]', "window_ms": window_ms})
    views.close()


# Who may read the files


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(data_dir: Path) -> dict[str, int]:
    found = [data_dir / segments.DIRECTORY, *(data_dir / segments.DIRECTORY).iterdir()]
    return {path.suffix or path.name: path.stat().st_mode & 0o7777 for path in found}


def test_files_are_for_the_owner_and_its_group_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    log = Log(tmp_path)
    log.block([1, 2, 3])
    log.sink.close()
    save_content(tmp_path, "0123456789ab", [("a.yaml", b"domain: a")], merge_domains=False)
    assert modes(tmp_path) == {"decisions": 0o750, ".hgd": 0o640, ".hgx": 0o640, ".rules": 0o640}
    for index in (tmp_path / segments.DIRECTORY).glob("*.hgx"):
        index.unlink()
    LogView([tmp_path]).events()
    assert modes(tmp_path)[".hgx"] == 0o640, "left behind by a reader"


def test_what_an_earlier_version_left_open_to_others_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / segments.DIRECTORY
    directory.mkdir()
    directory.chmod(0o2777)
    rules = directory / "0123456789ab.rules"
    rules.touch()
    rules.chmod(0o666)
    save_content(tmp_path, "0123456789ab", [("a.yaml", b"domain: a")], merge_domains=False)
    assert (directory.stat().st_mode & 0o7777, rules.stat().st_mode & 0o777) == (0o2770, 0o640)
