"""Small files of the operator that other programs replace while we run: how a change is noticed, and a bounded read."""

import os

from headgate.errors import ConfigError

FileIdentity = tuple[int, int, int] | None
"""Inode, time and size; None while there is no such file."""


def identity_of(path: str) -> FileIdentity:
    """Links are followed, so one that is swapped shows."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_bounded(path: str, max_bytes: int) -> bytes:
    """All of it. Raises ConfigError naming the file when it can't be read, or is larger."""
    try:
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(data) > max_bytes:
        raise ConfigError(f"{path}: larger than {max_bytes} bytes")
    return data
