"""The last known number of live nodes, kept over a restart.

The failure policies divide by it, and a node that starts while its shards are away has
nobody to ask. A file that is missing, torn or nonsense counts as one node.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

FILE_NAME: Final = "live_nodes"
MOST: Final = 100_000
"""More than any region has: a number above it is not one of ours."""


def read_live_nodes(data_dir: Path | None) -> int:
    """The number that was kept last; 1 when there is none."""
    if data_dir is None:
        return 1
    try:
        number = int((data_dir / FILE_NAME).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 1
    return number if 1 <= number <= MOST else 1


def write_live_nodes(data_dir: Path | None, number: int) -> None:
    """Atomic, and best effort: a full disk must not stop anything."""
    if data_dir is None:
        return
    temporary = data_dir / f".{FILE_NAME}.{os.getpid()}"
    with contextlib.suppress(OSError):
        temporary.write_text(str(number), encoding="ascii")
        temporary.replace(data_dir / FILE_NAME)
