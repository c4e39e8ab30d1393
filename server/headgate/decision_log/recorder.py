"""Which decisions are logged, and what is noted of each: the one place where decisions meet the decision log.

Every denial is logged, every decision that a failure policy made, every one that a shadow rule would have denied, and
one of so many allowances. On the loop's thread the recorder copies the figures of the counters that decided, because
they change with the next request. Names, hashes and the rest are worked out by the log's own thread (`Expander`).
"""

import random
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from headgate.clock import Clock
from headgate.decision_log.log import TRACE_BYTES, DecisionLog, Page
from headgate.decision_log.names import hash_of_descriptor, hash_of_key, terms_of
from headgate.decision_log.schema import COLUMNS, INTERNED, INTERNED_CODE, NO_SHARD, DecisionBatch, Flag
from headgate.limiter.counters import BucketCounter, WindowCounter
from headgate.limiter.decision import Charge, Decision, DecisionPath, Kind, Verdict
from headgate.limiter.engine import Engine
from headgate.plan import Plan
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.region.window_counter import SharedWindow

_64_BITS: Final = (1 << 64) - 1
_LOCAL: Final = DecisionPath.LOCAL
_ORDINARY: Final = (DecisionPath.LOCAL, DecisionPath.ORIGIN, DecisionPath.EXACT)
_PATHS: Final = tuple(DecisionPath)
_PATH_NAMES: Final = tuple([path.value for path in _PATHS])
# By identity: the hash of an enum's member is a function of Python's own library, in Python.
_WAYS: Final = {id(path): number for number, path in enumerate(_PATHS)}
_ADMITTED: Final = 64
"""Added to the number of a path for what was admitted."""
_DENIED_QUICKLY: Final = _PATHS.index(DecisionPath.DENY_CACHE)

# As plain numbers: flags of the enum's own kind take a microsecond to put together.
_NO_COUNTER: Final = int(Flag.NO_COUNTER)
_SHARD_AWAY: Final = int(Flag.SHARD_AWAY)
_ALLOWED: Final = int(Flag.ALLOWED)
_OVER: Final = int(Flag.OVER)
_SHADOW: Final = int(Flag.SHADOW)
_QUOTA: Final = int(Flag.QUOTA)
_REFUND: Final = int(Flag.REFUND)

Write = Callable[[list[int], Charge, Verdict, int, int, int, int, bool], None]
"""Appends the row of one charge to a page's numbers: the charge and its verdict, what of a row the recorder knows
(thing, number, weight, way), and whether it was denied from memory. Then no clock is read: until when the counter
denies, less what the verdict says of it, is when it was decided."""

_ROW: Final = (
    "thing",
    "number",
    "weight",
    "way",
    "over",
    "remaining",
    "wait_ms",
    "time_ms",
    "own",
    "others",
    "foreign",
    "previous",
    "shard",
    "live_nodes",
    "flags",
)
"""The numbers of one row of a page, in their order."""
_WIDTH: Final = len(_ROW)
_LAST_NUMBER: Final = _ROW.index("number") - _WIDTH
"""Where in a page the id of the decision stands that was logged last."""


class DecisionRecorder:
    """Told of every decision; gives each an id, and writes those that are to be logged to the page."""

    def __init__(
        self,
        log: DecisionLog,
        write: Write,
        *,
        allowances: int,
        random: random.Random,
    ) -> None:
        """`allowances`: one of so many is logged; 0 logs none."""
        self._log = log
        self._room = log.room
        self._write = write
        self._every = allowances
        self._until_next = allowances
        self._number = random.getrandbits(64)
        """The last decision's id. Begun anywhere, so that no two runs have the same in a foreseeable time."""

    def __call__(self, plan: Plan, decision: Decision) -> int:
        self._number = number = (self._number + 1) & _64_BITS
        admitted, path, verdicts = decision
        weight, way = 1, _WAYS[id(path)]
        if admitted:
            way += _ADMITTED
            if path is _LOCAL or _is_ordinary(path, verdicts):
                self._until_next -= 1
                if self._until_next:
                    return number
                self._until_next = weight = self._every
        page = self._room()
        if page is not None:
            flat = page.flat
            for charge, verdict in zip(plan.charges, verdicts, strict=True):
                thing = page.things.get(charge)
                if thing is None:
                    thing = _tell(page, plan, charge)
                self._write(flat, charge, verdict, thing, number, weight, way, False)
                page.rows += 1
        return number

    def quick(self, plan: Plan, verdict: Verdict, path: DecisionPath) -> None:
        """An allowance that is not logged costs no more than counting down."""
        denied = verdict[0]
        if denied:
            weight, way = 1, _DENIED_QUICKLY
        else:
            self._until_next -= 1
            if self._until_next:
                return
            self._until_next = weight = self._every
            way = _WAYS[id(path)] + _ADMITTED
        self._number = number = (self._number + 1) & _64_BITS
        page = self._room()
        if page is not None:
            charge = plan.charges[0]
            thing = page.things.get(charge)
            if thing is None:
                thing = _tell(page, plan, charge)
            self._write(page.flat, charge, verdict, thing, number, weight, way, denied)
            page.rows += 1

    def traced(self, number: int, trace_id: int) -> None:
        """The decision that was told last is part of a trace: its records say so, if it was logged."""
        page = self._log.page
        if page.rows and page.flat[_LAST_NUMBER] == number:
            page.traces[number] = trace_id
            page.size += TRACE_BYTES


def _is_ordinary(path: DecisionPath, verdicts: Sequence[Verdict]) -> bool:
    """No failure policy, and no shadow rule that had no room."""
    if path not in _ORDINARY:
        return False
    for over, _, _ in verdicts:  # noqa: SIM110 - `any` would make a generator for every decision that waited
        if over:
            return False
    return True


def _tell(page: Page, plan: Plan, charge: Charge) -> int:
    """A charge that this page has no row of yet; the number that stands for it."""
    thing = page.things[charge] = len(page.things)
    page.told.append((charge, plan.version))
    page.size += plan.size
    return thing


def write_alone(engine: Engine, clock: Clock) -> Write:
    """Rows of a node on its own: all that counts is its own."""
    find, now = engine.counters.find, clock.now_ms

    def write(
        flat: list[int], charge: Charge, verdict: Verdict, thing: int, number: int, weight: int, way: int, denied: bool
    ) -> None:
        counter = find(charge.key)
        over, remaining, wait_ms = verdict
        now_ms = counter.deny_until_ms - wait_ms if denied and counter is not None else now()
        own = previous = flags = 0
        if isinstance(counter, WindowCounter):
            # A denial from memory does not move the counter on to the window that it falls into.
            passed = now_ms // counter.window_ms - counter.sequence
            if passed <= 0:
                own, previous = counter.current, counter.previous
            elif passed == 1:
                previous = counter.current
        elif isinstance(counter, BucketCounter):
            own = _bucket_used(counter, charge, now_ms)
        else:
            flags = _NO_COUNTER
        flat += (
            thing, number, weight, way, over, remaining, wait_ms, now_ms, own, 0, 0, previous, NO_SHARD, 1, flags,
        )  # fmt: skip

    return write


def write_in_region(engine: RegionalEngine, node: RegionNode) -> Write:
    """Rows of a node of a region: its own, the others', the other regions'."""
    find = engine.counters.find

    def write(
        flat: list[int], charge: Charge, verdict: Verdict, thing: int, number: int, weight: int, way: int, denied: bool
    ) -> None:
        counter = find(charge.key)
        over, remaining, wait_ms = verdict
        own = others = foreign = previous = 0
        if counter is None:
            link = node.shard_of(charge.shard_key)
            now_ms, shard, flags = link.now_ms(), link.index, _NO_COUNTER
        else:
            place = counter.shard
            # Who is denied because it is not the node's turn waits for that, or for room.
            now_ms = counter.deny_until_ms - wait_ms if denied and counter.turns is None else place.now_ms()
            shard, flags = place.index, 0 if place.available else _SHARD_AWAY
            if isinstance(counter, SharedWindow):
                cell = counter.current_cell
                own, others, foreign, previous = cell.own, cell.others, cell.foreign, counter.previous
                own = max(own, cell.total + cell.reserved)
            else:
                own = _bucket_used(counter, charge, now_ms)
        flat += (
            thing, number, weight, way, over, remaining, wait_ms, now_ms,
            own, others, foreign, previous, shard, node.live_nodes, flags,
        )  # fmt: skip

    return write


def _bucket_used(counter: Any, charge: Charge, now_ms: int) -> int:
    """Whole requests that the bucket has no token for any more, rounded up."""
    used = max(0, counter.tat - now_ms * counter.rate)
    return int(-(-used // charge.limit.window_ms))


def make_write(engine: Engine | RegionalEngine, node: RegionNode | None, clock: Clock) -> Write:
    """How to write rows about the counters of this process."""
    if isinstance(engine, RegionalEngine):
        assert node is not None  # noqa: S101 - a regional engine is a node's
        return write_in_region(engine, node)
    return write_alone(engine, clock)


class Expander:
    """Turns pages into records. For the log's thread alone."""

    def __init__(self, *, values: bool) -> None:
        """`values`: log descriptors as they are, and not their hashes alone."""
        self._values = values

    def __call__(self, page: Page) -> DecisionBatch:
        row = {name: page.flat[index::_WIDTH] for index, name in enumerate(_ROW)}
        charges, versions = [charge for charge, _ in page.told], [version for _, version in page.told]
        thing = row["thing"]
        # What a row does not say itself follows from its charge.
        names = [charge.logged or _name(charge) for charge in charges]
        for index, name in enumerate(("key", "who", "flags_of_charge")):
            row[name] = _spread([told[index] for told in names], thing)
        row["cost"] = _spread([charge.cost for charge in charges], thing)
        row["trace_high"], row["trace_low"] = _traces(page, row["number"])
        row["path"] = [way % _ADMITTED for way in row["way"]]
        row["flags"] = [
            seen | own | (_OVER if over else 0) | (_ALLOWED if way & _ADMITTED else 0)
            for seen, own, over, way in zip(row["flags"], row["flags_of_charge"], row["over"], row["way"], strict=True)
        ]
        rules, row["rule"] = _interned([charge.rule for charge in charges], thing)
        limits, row["terms"] = _interned([charge.limit for charge in charges], thing)
        sets, row["version"] = _interned(versions, thing)
        entries, row["entries"] = _interned([charge.entries if self._values else () for charge in charges], thing)
        tables = {
            "rule": rules,
            "terms": [terms_of(limit) for limit in limits],
            "version": [str(version) for version in sets],
            "path": _PATH_NAMES,
            "entries": entries,
        }
        columns = [array(code, row[name]) for name, code in COLUMNS]
        columns += [array(INTERNED_CODE, row[name]) for name in INTERNED]
        return DecisionBatch(page.rows, columns, tables)


def _traces(page: Page, numbers: list[int]) -> tuple[list[int], list[int]]:
    """For each row the two halves of its trace's id; 0 where there is none, as mostly."""
    if not page.traces:
        return [0] * page.rows, [0] * page.rows
    ids = [page.traces.get(number, 0) for number in numbers]
    return [trace_id >> 64 for trace_id in ids], [trace_id & _64_BITS for trace_id in ids]


def _name(charge: Charge) -> tuple[int, int, int]:
    """What the log calls the charge's counter and descriptor. Kept with the charge, which may be logged often."""
    flags = (_SHADOW if charge.shadow else 0) | (_QUOTA if charge.quota else 0)
    flags |= _REFUND if charge.kind is Kind.REFUND else 0
    charge.logged = (hash_of_key(charge.key), hash_of_descriptor(charge.rule.domain, charge.entries), flags)
    return charge.logged


def _spread(of_things: list[int], thing: list[int]) -> list[int]:
    """For each row, what is so of its charge."""
    return list(map(of_things.__getitem__, thing))


def _interned(values: Sequence[Any], thing: list[int]) -> tuple[list[Any], list[int]]:
    """Each value once, and for each row the number of its charge's. By identity: equal ones are mostly one object."""
    ids = list(map(id, values))
    by_id = dict(zip(ids, values, strict=True))
    numbers = {key: number for number, key in enumerate(by_id)}
    return list(by_id.values()), _spread(list(map(numbers.__getitem__, ids)), thing)
