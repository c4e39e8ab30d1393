"""Cells of a region in which its shards count less than its living nodes have admitted."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate.region.counters import SharedCounter
from headgate.region.window_counter import SharedWindow
from headgate.simulation.shard import SimulatedShard, cells_of


class LostCell(NamedTuple):
    """One window of one key, and the cost that nodes admitted in it and that its shard counts."""

    key: bytes
    sequence: int
    admitted: int
    counted: int


def lost_cells(shards: Iterable[SimulatedShard], counters: Iterable[SharedCounter]) -> Iterator[LostCell]:
    """Compare the counters of a region's living nodes with the records of its shards."""
    admitted: Counter[tuple[bytes, int]] = Counter()
    for counter in counters:
        if isinstance(counter, SharedWindow):
            for cell in counter.cells:
                admitted[counter.key, cell.sequence] += cell.total
    for shard in shards:
        for key, record in shard.windows():
            for sequence, count in cells_of(record).items():
                if admitted[key, sequence] > count.region_total:
                    yield LostCell(key, sequence, admitted[key, sequence], count.region_total)
