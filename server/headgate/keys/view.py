"""A limit key, for people: as this node knows it, as its region's origin has it, and what follows from that.

Looking is all it does: counters are neither made, nor rolled over, nor marked as used.
"""

from typing import Any

from headgate.keys.peek_key import BucketPeek, KeyPeek, WindowPeek
from headgate.limiter.counters import BucketCounter, KeyCounter, WindowCounter
from headgate.limiter.decision import ALGORITHMS
from headgate.limiter.limit import MILLION, Algorithm, Limit
from headgate.limiter.usage import used_at
from headgate.region.counters import SharedCounter
from headgate.region.window_counter import SharedWindow
from headgate.v1 import keys_pb2 as pb


def add_usage(state: pb.KeyState, counter: Any, limit: Limit) -> None:
    """Add the cost that counts against a limit now, what is left, and when something more is, by the limit's own
    algorithm. `counter` is a copy that may be rolled over."""
    algorithm, now_ms = ALGORITHMS[limit.algorithm], state.time_ms
    remaining = algorithm.take(counter, limit, now_ms, 0)
    state.frees_in_ms = 0 if remaining > 0 else algorithm.retry_ms(counter, limit, now_ms, 1)
    state.used, state.remaining = used_at(counter, limit, now_ms), max(0, remaining)


def previous_weight(limit: Limit, now_ms: int) -> int:
    """The share of the previous window that still counts, in millionths."""
    if limit.algorithm is not Algorithm.SLIDING_WINDOW:
        return 0
    return (limit.window_ms - now_ms % limit.window_ms) * MILLION // limit.window_ms


# Copies, of which the algorithms may do what they like


def copy_of_counter(counter: KeyCounter | None, key: bytes, limit: Limit, now_ms: int) -> Any:
    """Copy what this node knows, at `now_ms`."""
    if limit.algorithm is Algorithm.GCRA:
        bucket = BucketCounter(key, limit)
        if counter is not None:
            bucket.rate, bucket.tat = counter.rate, counter.tat  # type: ignore[attr-defined]
        return bucket
    window = WindowCounter(key, limit, now_ms // limit.window_ms)
    if counter is not None:
        window.sequence = counter.sequence  # type: ignore[attr-defined]
        window.current, window.previous = counter.current, counter.previous  # type: ignore[attr-defined]
    return window


def copy_of_record(look: KeyPeek, key: bytes, limit: Limit) -> Any:
    """Copy what the region's origin knows, at its time."""
    record = look.record
    if isinstance(record, BucketPeek):
        bucket = BucketCounter(key, limit)
        bucket.rate, bucket.tat = record.rate, record.arrival_ms * record.rate + record.arrival_rest
        return bucket
    if isinstance(record, WindowPeek):
        window = WindowCounter(key, limit, record.sequence)
        window.current, window.previous = record.current.used, record.previous.used
        return window
    return copy_of_counter(None, key, limit, look.time_ms)


# Messages


def node_message(node: str, counter: KeyCounter | None, now_ms: int, now_s: float) -> pb.NodeView:
    """Describe what this node knows. Its cells are named by the window of now."""
    view = pb.NodeView(node=node, known=counter is not None)
    if counter is None:
        return view
    view.denies_for_ms = max(0, counter.deny_until_ms - now_ms)
    if isinstance(counter, SharedCounter):
        view.grant = counter.spendable(now_s)
        view.usable_for_ms = max(0, int((counter.usable_until_s - now_s) * 1000))
        view.unacknowledged = counter.unacked
        view.credit = counter.credit
        if counter.refunds is not None:
            cells_back = (counter.refunds.current, counter.refunds.previous)
            view.demanded_back = sum(cell.demanded - cell.settled for cell in cells_back)
    if isinstance(counter, SharedWindow):
        sequence = max(counter.sequence, now_ms // counter.window_ms)
        cells = {
            cell.sequence: pb.CellCounts(own=cell.total + cell.reserved, others=cell.others, foreign=cell.foreign)
            for cell in counter.cells
        }
        if counter.refunds is not None:
            cells[counter.sequence].refunded = counter.refunds.current.given
            cells[counter.sequence - 1].refunded = counter.refunds.previous.given
    elif isinstance(counter, WindowCounter):
        sequence = max(counter.sequence, now_ms // counter.window_ms)
        cells = {
            counter.sequence: pb.CellCounts(own=counter.current),
            counter.sequence - 1: pb.CellCounts(own=counter.previous),
        }
    else:
        view.arrival_ms = -(-counter.tat // counter.rate)  # type: ignore[attr-defined]
        return view
    view.current.CopyFrom(cells.get(sequence, pb.CellCounts()))
    view.previous.CopyFrom(cells.get(sequence - 1, pb.CellCounts()))
    return view


def region_message(look: KeyPeek) -> pb.RegionView | None:
    """Describe what the region's origin has; None where it has nothing."""
    record = look.record
    if record is None:
        return None
    runs = [
        pb.RunView(run=_text(part.name), current=part.current, previous=part.previous, grant=part.held)
        for part in record.components
    ]
    if isinstance(record, BucketPeek):
        return pb.RegionView(runs=runs, hidden=look.hidden, arrival_ms=record.arrival_ms)
    regions = [
        pb.ForeignView(region=_text(part.region), current=part.current, previous=part.previous, next=part.ahead)
        for part in record.regions
    ]
    cells = {"current": record.current, "previous": record.previous}
    counts = {f"{cell}_{name}": count for cell, counts in cells.items() for name, count in counts._asdict().items()}
    return pb.RegionView(runs=runs, regions=regions, hidden=look.hidden, **counts)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
