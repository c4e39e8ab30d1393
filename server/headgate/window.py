"""The arithmetic of a sliding window, written once for limits, nodes and the origin in memory (in Lua: common.lua)."""


def weighted(previous: int, left_ms: int, window_ms: int) -> int:
    """Count of the previous window that still weighs when `left_ms` of the current one are left, rounded down."""
    return previous * left_ms // window_ms
