"""The arithmetic of a sliding window, once for everything that counts by one.

Whole milliseconds and integers, rounded down: Lua has the same (`origin/lua`), and one table of cases holds both.
"""


def weighted(previous: int, left_ms: int, window_ms: int) -> int:
    """Return how much of the previous window's count still counts while `left_ms` of the current window are left."""
    return previous * left_ms // window_ms
