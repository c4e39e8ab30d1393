"""Bytes that are held for what is not finished: bounded per connection and altogether."""


class Budget:
    """Bytes that may be unfinished, on all connections together and on each."""

    def __init__(self, max_bytes: int, max_bytes_each: int) -> None:
        self.max_bytes = max_bytes
        self.max_bytes_each = max_bytes_each
        self.used_bytes = 0


class Backlog:
    """Bytes that one side of a connection did not take yet, over all connections."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0

    @property
    def is_over(self) -> bool:
        return self.bytes > self.max_bytes


class BudgetShare:
    """One connection's part of a budget."""

    __slots__ = ("_budget", "_used_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._used_bytes = 0

    def take(self, size: int) -> bool:
        budget = self._budget
        if self._used_bytes + size > budget.max_bytes_each or budget.used_bytes + size > budget.max_bytes:
            return False
        self._used_bytes += size
        budget.used_bytes += size
        return True

    def give(self, size: int) -> None:
        self._used_bytes -= size
        self._budget.used_bytes -= size
