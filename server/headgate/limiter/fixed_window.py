"""Fixed window: what was admitted since the window began; the previous window counts for nothing."""

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import WindowCounter
from headgate.limiter.limit import Limit


class FixedWindowCounter(WindowCounter):
    __slots__ = ()

    @property
    def expires_ms(self) -> int:
        return (self.sequence + 1) * self.window_ms


class FixedWindow:
    def new_cell(self, key: bytes, limit: Limit, now_ms: int) -> FixedWindowCounter:
        return FixedWindowCounter(key, limit.window_ms, now_ms // limit.window_ms)

    def take(self, cell: FixedWindowCounter, limit: Limit, now_ms: int, cost: int) -> int:
        sequence = now_ms // cell.window_ms
        if sequence != cell.sequence:
            cell.roll(sequence)
        remaining = limit.requests_per_unit - cell.current - cost
        if remaining < 0 or not limit.requests_per_unit:  # a limit of 0 denies a cost of 0 too
            return OVER
        cell.current += cost
        return remaining

    def release(self, cell: FixedWindowCounter, limit: Limit, cost: int) -> None:
        cell.current -= cost

    def remaining(self, cell: FixedWindowCounter, limit: Limit, now_ms: int) -> int:
        return max(0, limit.requests_per_unit - cell.current)

    def retry_ms(self, cell: FixedWindowCounter, limit: Limit, now_ms: int, cost: int) -> int:
        return self.reset_ms(cell, limit, now_ms)

    def reset_ms(self, cell: FixedWindowCounter, limit: Limit, now_ms: int) -> int:
        return cell.window_ms - now_ms % cell.window_ms
