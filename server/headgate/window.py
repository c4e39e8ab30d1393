"""The arithmetic of a sliding window, written once for limits, nodes and the origin in memory (in Lua: common.lua)."""


def weighted(previous: int, left_ms: int, window_ms: int) -> int:
    """Count of the previous window that still weighs when `left_ms` of the current one are left, rounded down."""
    return previous * left_ms // window_ms


def used(current: int, previous: int, now_ms: int, window_ms: int) -> int:
    """Count that a sliding window holds against its limit at `now_ms`."""
    if not previous:
        return current
    return current + weighted(previous, window_ms - now_ms % window_ms, window_ms)
