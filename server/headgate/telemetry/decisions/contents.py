"""The content of rule sets, kept once per version beside the decision log: what a rule said when it decided.

A file is named by the digest of what is in it, so it is written once however often the version comes back. The newest
are kept, bounded in number and in bytes.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.telemetry.decisions.segments import DIRECTORY, log_directory

SUFFIX: Final = ".rules"
MAX_CONTENT_BYTES: Final = 64 * 1024 * 1024
"""Of one version, before compression. A larger one is not kept; the log has its rules' limits all the same."""
MAX_KEPT: Final = 200
MAX_KEPT_BYTES: Final = 128 * 1024 * 1024
DIGEST_CHARS: Final = 12
"""Of a rule set's digest: as versions show it."""

Files = Sequence[tuple[str, bytes]]
"""Name and content of every rules file."""
Content = tuple[list[tuple[str, bytes]], bool]
"""A version's files, and whether its domains were merged."""


def save_content(data_dir: Path, digest: str, files: Files, *, merge_domains: bool) -> bool:
    """Keep a version's files. False: they are too large. Raises OSError."""
    directory = data_dir / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{digest[:DIGEST_CHARS]}{SUFFIX}"
    if path.exists():
        path.touch()
        return True
    if sum(len(data) for _, data in files) > MAX_CONTENT_BYTES:
        return False
    texts = [[name, data.decode("utf-8", "surrogateescape")] for name, data in files]
    packed = zlib.compress(json.dumps({"merge_domains": merge_domains, "files": texts}).encode(), 6)
    _make_room(directory, len(packed))
    temporary = directory / f".{path.name}.{os.getpid()}"
    temporary.write_bytes(packed)
    temporary.replace(path)
    return True


def load_content(data_dir: Path, digest: str) -> Content | None:
    """What was in a version; None when it was not kept."""
    path = log_directory(data_dir) / f"{digest[:DIGEST_CHARS]}{SUFFIX}"
    try:
        content = json.loads(zlib.decompress(path.read_bytes()))
        files = [(str(name), text.encode("utf-8", "surrogateescape")) for name, text in content["files"]]
    except (OSError, zlib.error, ValueError, KeyError):
        return None
    return files, bool(content["merge_domains"])


def _make_room(directory: Path, size: int) -> None:
    """Remove versions that were in force longest ago."""
    kept = sorted([(path.stat().st_mtime_ns, path, path.stat().st_size) for path in directory.glob(f"*{SUFFIX}")])
    total = sum(item[2] for item in kept) + size
    for number, (_, path, bytes_) in enumerate(kept):
        if total <= MAX_KEPT_BYTES and len(kept) - number < MAX_KEPT:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= bytes_
