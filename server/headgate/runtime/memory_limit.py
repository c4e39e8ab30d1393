"""The memory that this process's control group allows, and how many counters fit into it.

A table of counters that is bounded by a number alone may be larger than the container: a flood of new
keys would have it killed. The number follows the limit unless the operator sets one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
COUNTER_BYTES: Final = 750
"""Resident bytes of one counter of a region's node, with its place in the table: 669 in `make bench`, more while there
are few. tests/e2e/test_memory_limit.py measures it; smaller would let a full table outgrow the container."""
PROCESS_BYTES: Final = 96 * MIB
"""Resident bytes of a process without counters, connections or many rules: 78 MiB measured."""
COUNTERS_PART: Final = 0.6
"""Share of what the process leaves. The rest is for rules, plans, and calls that are pending or half there."""
DEFAULT_COUNTERS: Final = 1_000_000
"""Without a limit, and the most that follow from one: who wants more has a reason, and says so."""
LEAST_COUNTERS: Final = 1_000


def counters_within(limit_bytes: int | None, processes: int) -> int:
    """Return how many counters each of so many processes may keep under one memory limit."""
    if limit_bytes is None:
        return DEFAULT_COUNTERS
    left = limit_bytes // processes - PROCESS_BYTES
    return max(LEAST_COUNTERS, min(DEFAULT_COUNTERS, int(left * COUNTERS_PART) // COUNTER_BYTES))


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the lowest memory limit of the control groups that this process is in; None without one.

    Version 2 and version 1 of Linux's control groups; in a container they look as if it were the whole machine.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None  # not a Linux
    limits = [_read_limit(file) for line in groups for file in _limit_files(root, line)]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_files(root: Path, line: str) -> Iterator[Path]:
    """Yield the files with the limits of one line of /proc/self/cgroup: of its group, and of each above it."""
    _, controllers, path = line.split(":", 2)
    if controllers == "":
        mount, name = root / "sys/fs/cgroup", "memory.max"
    elif "memory" in controllers.split(","):
        mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
    else:
        return
    group = mount / path.lstrip("/")
    while True:
        yield group / name
        if group == mount:
            return
        group = group.parent


def _read_limit(file: Path) -> int | None:
    """Return the limit in a file; None if it says `max` or is not there: a container does not see all of its path."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
