"""Files of the decision log: for their owner and its group, whatever the umask is. They say who called how much."""

import os
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750
_OTHERS: Final = 0o007


def create_log_file(path: Path, flags: int = 0) -> int:
    """Open a file for writing, made if it is missing; return its descriptor. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def make_log_directory(path: Path) -> None:
    """Make the directory of the log; to one that is there and ours, others lose what access they have. Raises OSError.

    What its owner gave to the group stays: somebody may want it.
    """
    try:
        path.mkdir(parents=True)
        path.chmod(DIRECTORY_MODE)
    except FileExistsError:
        info = path.stat()
        if info.st_uid == os.geteuid() and info.st_mode & _OTHERS:
            path.chmod(info.st_mode & 0o7777 & ~_OTHERS)
