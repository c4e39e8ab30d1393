"""Descriptors of a process: the kernel's table of them, and how many connections it may have."""

import re
import resource
import subprocess
import sys
from pathlib import Path

from headgate.transport.descriptors import PER_CONNECTION, RESERVED, make_table

CONNECTIONS = 1_000
IN_A_PROCESS = f"""
from headgate.transport.descriptors import make_table, room_for
print(room_for({CONNECTIONS}))
make_table({CONNECTIONS})
print(open("/proc/self/status").read())
"""
"""One of its own: a table never gets smaller."""


def table_size(status: str) -> int:
    (size,) = re.findall(r"^FDSize:\s+(\d+)$", status, re.MULTILINE)
    return int(size)


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_the_table_is_made_for_all_connections_before_they_come() -> None:
    run = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True)
    room, _, status = run.stdout.partition("\n")
    assert int(room) == CONNECTIONS
    assert table_size(status) >= CONNECTIONS * PER_CONNECTION + RESERVED


def test_no_file_stays_open_for_it_and_too_many_are_no_error() -> None:
    before, (soft, _) = open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for connections in (1, soft):
        make_table(connections)
    assert open_files() <= before
