"""The content of rule sets, kept once per version beside the decision log: what a rule said when it decided.

A file is named by the digest of what is in it, so it is written once however often the version comes back. The newest
are kept, bounded in number and in bytes. Where the log is shipped as lines, the content goes along in parts, each of
which is an event, so that lines alone tell what older rules said.
"""

import base64
import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headgate.decision_log.files import FILE_MODE, create_log_file, make_log_directory
from headgate.decision_log.segments import DIRECTORY, log_directory

SUFFIX: Final = ".rules"
MAX_CONTENT_BYTES: Final = 64 * 1024 * 1024
"""Size of one version before compression. A larger one is not kept; the log has its rules' limits all the same."""
MAX_KEPT: Final = 200
MAX_KEPT_BYTES: Final = 128 * 1024 * 1024
DIGEST_CHARS: Final = 12
"""Length of a rule set's digest as versions show it."""

PART: Final = "rules_content"
"""The kind of event that has a part of a rule set."""
PART_CHARS: Final = 8 * 1024
"""Length of one part: container runtimes break lines at 16 KiB."""
MAX_PARTS: Final = 64
"""Parts of one rule set: half a megabyte when packed, some 50,000 rules. What is larger is not shipped."""

Files = Sequence[tuple[str, bytes]]
"""Name and content of every rules file."""
Content = tuple[list[tuple[str, bytes]], bool]
"""A version's files, and whether its domains were merged."""


def save_content(data_dir: Path, digest: str, files: Files, *, merge_domains: bool) -> bool:
    """Keep a version's files. False: they are too large. Raises OSError."""
    directory = data_dir / DIRECTORY
    make_log_directory(directory)
    path = directory / f"{digest[:DIGEST_CHARS]}{SUFFIX}"
    if path.exists():
        path.touch()
        path.chmod(FILE_MODE)
        return True
    if sum(len(data) for _, data in files) > MAX_CONTENT_BYTES:
        return False
    packed = _pack(files, merge_domains=merge_domains)
    _make_room(directory, len(packed))
    temporary = directory / f".{path.name}.{os.getpid()}"
    with open(create_log_file(temporary, os.O_TRUNC), "wb") as file:
        file.write(packed)
    temporary.replace(path)
    return True


def load_content(data_dir: Path, digest: str) -> Content | None:
    """The files of a version; None when they were not kept."""
    path = log_directory(data_dir) / f"{digest[:DIGEST_CHARS]}{SUFFIX}"
    try:
        return _unpack(path.read_bytes())
    except (OSError, *_BROKEN):
        return None


def parts_of(digest: str, files: Files, *, merge_domains: bool) -> list[dict[str, Any]]:
    """A version's files as the fields of events; none, if they are too large."""
    if sum(len(data) for _, data in files) > MAX_CONTENT_BYTES:
        return []
    text = base64.b85encode(_pack(files, merge_domains=merge_domains)).decode()
    pieces = [text[first : first + PART_CHARS] for first in range(0, len(text), PART_CHARS)]
    if len(pieces) > MAX_PARTS:
        return []
    digest = digest[:DIGEST_CHARS]
    return [{"digest": digest, "part": n, "of": len(pieces), "data": piece} for n, piece in enumerate(pieces)]


def joined(parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Content]]:
    """The versions whose parts are all there, by their digests."""
    by_digest: dict[str, dict[int, str]] = {}
    wanted: dict[str, int] = {}
    for part in parts:
        with contextlib.suppress(*_BROKEN):
            digest, number, of = str(part["digest"]), int(part["part"]), int(part["of"])
            by_digest.setdefault(digest, {})[number] = str(part["data"])
            wanted[digest] = of
    for digest, pieces in by_digest.items():
        if len(pieces) == wanted[digest]:
            with contextlib.suppress(*_BROKEN):
                yield digest, _unpack(base64.b85decode("".join([pieces[n] for n in sorted(pieces)])))


_MOST_PACKED_BYTES: Final = 8 * MAX_CONTENT_BYTES
"""Size of a content as JSON, which may write a byte as six."""
_BROKEN: Final = (zlib.error, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a content that is none."""


def _pack(files: Files, *, merge_domains: bool) -> bytes:
    texts = [[name, data.decode("utf-8", "surrogateescape")] for name, data in files]
    return zlib.compress(json.dumps({"merge_domains": merge_domains, "files": texts}).encode(), 6)


def _unpack(packed: bytes) -> Content:
    """Raises one of `_BROKEN` for what is none, or too large to be one."""
    inflater = zlib.decompressobj()
    text = inflater.decompress(packed, _MOST_PACKED_BYTES)
    if not inflater.eof:
        raise ValueError("larger than any content is")
    content = json.loads(text)
    files = [(str(name), text.encode("utf-8", "surrogateescape")) for name, text in content["files"]]
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
