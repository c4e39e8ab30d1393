"""How the decision log is stored, beside sqlite3; and how long an explanation takes over a large log.

    python -m benchmarks.decision_log [--records N] [--mebibytes N]

First the store: the same pages of records go to blocks with their index, as the server writes them, and to a table of
sqlite3 with the two indexes that an explanation needs; size on disk and CPU for writing, per record. Pages are of two
kinds: full ones, of 20,000 denials a second by a thousand callers, and those of 93 a second, four a second with 23
records each. Then explanations over a log of that many mebibytes, of both kinds: by descriptor, by id, and of a
descriptor that is not in it; the best of three times, and its CPU. So the file cache is warm.
"""

import argparse
import os
import random
import sqlite3
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.explain.explanation import explain
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.schema import CODES, STORED, Event, Flag, LimitTerms, NodeRun, Rule
from headgate.decision_log.segments import DIRECTORY, Bounds, SegmentSink

SOURCE = NodeRun("eu", "bench", 1)
BOUNDS = Bounds(1 << 40, 1 << 60)
BEGAN_MS = 1_700_000_000_000
CALLERS = 1_000
TIMES = 3
"""Each question is put so often; the best counts, because others may use the machine."""
EVENT_EVERY = 500
"""Blocks of decisions between two events."""
TABLES: dict[str, Any] = {
    "rule": [Rule("edge", "user", "user")],
    "terms": [LimitTerms(100, 60_000, "sliding_window", 0, 1, "local", "region", "minute")],
    "version": ["7-e5604105581a"],
    "path": ["local", "deny_cache"],
    "entries": [()],
}


class Shape(NamedTuple):
    """How decisions come: records of a page, and pages a second."""

    name: str
    records: int
    pages_per_s: float


SHAPES = (Shape("20,000 a second", 1_024, 20_000 / 1_024), Shape("93 a second", 23, 4))
DESCRIPTORS = [(("user", f"caller-{number}"),) for number in range(CALLERS)]
HASHES = [hash_of_descriptor("edge", entries) for entries in DESCRIPTORS]
_KEY = 0x5DEECE66D1234567
"""Makes a key's hash of a descriptor's: as hard to compress."""


def pages(shape: Shape, seed: int) -> Iterator[DecisionBatch]:
    """Pages of denials, callers in a random order, for ever."""
    rng, number, time_s = random.Random(seed), random.Random(seed).getrandbits(62), BEGAN_MS / 1000
    count = shape.records
    order = HASHES * 4
    rng.shuffle(order)
    columns = {line.name: array(code, [0]) * count for line, code in zip(STORED, _first_codes(), strict=True)}
    columns["own"], columns["cost"] = array("q", [100]) * count, array("I", [1]) * count
    columns["weight"], columns["live_nodes"] = array("I", [1]) * count, array("H", [3]) * count
    columns["flags"], columns["path"] = array("H", [int(Flag.OVER)]) * count, array("H", [1]) * count
    while True:
        begin = rng.randrange(len(order) - count)
        callers = array("Q", order[begin : begin + count])
        step_ms = 1000 / shape.pages_per_s / count
        first_ms = int(time_s * 1000)
        columns["time_ms"] = array("q", [first_ms + int(at * step_ms) for at in range(count)])
        columns["number"] = array("Q", range(number, number + count))
        columns["descriptor_hash"] = callers
        columns["key"] = array("Q", [value ^ _KEY for value in callers])
        columns["wait_ms"] = array("q", [60_000 - moment % 60_000 for moment in columns["time_ms"]])
        yield DecisionBatch(count, list(_all_columns(columns)), TABLES)
        number += count
        time_s += 1 / shape.pages_per_s


def _first_codes() -> list[str]:
    return [line.column.codes[0] for line in STORED]


def _all_columns(columns: dict[str, "array[Any]"]) -> Iterator["array[Any]"]:
    for line in STORED:
        yield columns[line.name]
        if line.name == "trace_id":
            yield columns[line.name]


# The store


def into_blocks(directory: Path) -> tuple[Callable[[DecisionBatch], None], Callable[[], None]]:
    sink = SegmentSink(directory, SOURCE, BOUNDS)
    return (lambda batch: sink.decisions(batch, BEGAN_MS)), sink.close


def into_sqlite(directory: Path) -> tuple[Callable[[DecisionBatch], None], Callable[[], None]]:
    """Names are interned as in blocks, so a row is numbers alone; one transaction a page."""
    directory.mkdir(parents=True)
    store = sqlite3.connect(directory / "decisions.db")
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = OFF")  # as blocks: what was written survives the process, not the machine
    names = [f"c{number}" for number in range(len(CODES))]
    store.execute(f"CREATE TABLE decisions ({', '.join(names)})")
    who, number, when = (
        names[[line.name for line in STORED].index(n)] for n in ("descriptor_hash", "number", "time_ms")
    )
    store.execute(f"CREATE INDEX by_descriptor ON decisions ({who}, {when})")
    store.execute(f"CREATE INDEX by_number ON decisions ({number})")
    insert = f"INSERT INTO decisions VALUES ({', '.join('?' for _ in names)})"  # noqa: S608 - question marks alone

    def write(batch: DecisionBatch) -> None:
        with store:
            store.executemany(insert, zip(*[_signed(column) for column in batch.columns], strict=True))

    return write, store.close


def _signed(column: "array[Any]") -> "array[Any]":
    """As SQL has it: its integers have a sign."""
    return array("q", column.tobytes()) if column.typecode == "Q" else column


STORES = {"blocks": into_blocks, "sqlite3": into_sqlite}


def compare(records: int) -> None:
    print(f"{'pages':<17} {'store':<9} {'B a record':>10} {'CPU µs a record':>16}")
    for shape in SHAPES:
        for name, open_store in STORES.items():
            with tempfile.TemporaryDirectory(prefix="headgate-store-") as folder:
                write, close = open_store(Path(folder) / "store")
                written, spent_s = 0, 0.0
                for batch in pages(shape, 1):
                    if written >= records:
                        break
                    before_s = time.process_time()
                    write(batch)
                    spent_s += time.process_time() - before_s
                    written += batch.count
                before_s = time.process_time()
                close()
                spent_s += time.process_time() - before_s
                size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
            print(f"{shape.name:<17} {name:<9} {size / written:>10.1f} {spent_s / written * 1e6:>16.2f}", flush=True)


# Explanations


def fill(directory: Path, shape: Shape, size: int) -> DecisionBatch:
    """Write a log of that size; a page from its middle."""
    sink = SegmentSink(directory, SOURCE, BOUNDS)
    middle: DecisionBatch | None = None
    written = 0
    for number, batch in enumerate(pages(shape, 2)):
        now_ms = batch.column("time_ms")[0]
        if number % EVENT_EVERY == 0:
            written = _size(directory)
            event = Event(now_ms, "start" if not number else "live_nodes", {"live_nodes": 3}, SOURCE)
            sink.events([event], now_ms)
            if written >= size:
                break
        if written < size // 2:
            middle = batch
        sink.decisions(batch, BEGAN_MS)
    sink.close()
    assert middle is not None
    return middle


def _size(directory: Path) -> int:
    total = 0
    with suppress(FileNotFoundError):
        for entry in os.scandir(directory / DIRECTORY):
            total += entry.stat().st_size
    return total


def questions(page: DecisionBatch) -> dict[str, DecisionQuestion]:
    at_ms, number = page.column("time_ms")[0], page.column("number")[5]
    caller = DESCRIPTORS[HASHES.index(page.column("descriptor_hash")[5])]
    return {
        "by descriptor, 5 minutes around": DecisionQuestion("edge", caller, at_ms),
        "by descriptor, a week around": DecisionQuestion("edge", caller, at_ms, 7 * 86_400_000),
        "by id": DecisionQuestion(at_ms=at_ms, number=number),
        "a descriptor that is not there": DecisionQuestion("edge", (("user", "nobody"),), at_ms),
    }


def ask(directory: Path, shape: Shape, page: DecisionBatch) -> None:
    for name, question in questions(page).items():
        took_s = cpu_s = float("inf")
        for _ in range(TIMES):
            view = LogView([directory])
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            answer = explain(view, question)
            took_s = min(took_s, time.perf_counter() - began_s)
            cpu_s = min(cpu_s, time.process_time() - began_cpu_s)
        stats = view.stats
        print(
            f"{shape.name:<17} {name:<32} {answer.outcome.value:<11} {took_s:>5.2f} s, CPU {cpu_s:.2f} s, "
            f"{stats.blocks:>5,} blocks of {stats.block_bytes / 2**20:.1f} MiB read in {stats.segments} segments",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000, help="records for each store (%(default)s)")
    parser.add_argument("--mebibytes", type=int, default=1_024, help="size of the log to explain from (%(default)s)")
    arguments = parser.parse_args()
    compare(arguments.records)
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="headgate-explain-") as folder:
            directory = Path(folder)
            page = fill(directory, shape, arguments.mebibytes * 2**20)
            ask(directory, shape, page)


if __name__ == "__main__":
    main()
