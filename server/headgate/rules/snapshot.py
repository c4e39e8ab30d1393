"""A compiled rule set as a file: for restarts, and to serve on when the directory is bad.

    headgate-rules-snapshot <format> <sha256 of the rest> <bytes of the rest>\n
    {"digest": …, "counter": …, "count": …, "saved_ms": …, "limits": […], "origins": {…}, "overlay": {…}}\n
    one JSON list per line

It is written beside its place, synced and renamed, so a kill at any moment leaves the
old file or the new one. It is served only if it is ours: a plain file of the user that we
are, that no other user may read or write, and whole by its digest. Anything that is not a
whole snapshot of this version is refused by name; nothing is half used. JSON, because a file can be changed by others,
and lines, because a million rules in one call would hold the interpreter for a second.

Lines are lists; the first item says of which kind: [[domain, path, name], text] is a file
that is in force, packed; [slot number, {value: node number}] is
a part of a large slot; [null, limit, level] the next node (limit: an index, or null);
[domain, level, shard_by, request_limits] a domain. A level is a list of [key, values, wildcards, any], where
values is a dict, or the number of a large slot whose parts came before, and nodes are
named by their numbers. A node comes after those that its level names.
"""

import contextlib
import hashlib
import io
import json
import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from headgate.limiter.limit import Algorithm, Limit, OnError, Scope, TrafficClass, Unit
from headgate.rules.acceptance import KeptFile
from headgate.rules.model import Version
from headgate.rules.overlay import OverlayReport
from headgate.rules.problems import NoSnapshot, OtherSnapshot, Problem, SnapshotError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import Domain, RuleSet
from headgate.rules.tree import NOWHERE, KeySlot, Level, RuleNode, Wildcard
from headgate.rules.wildcards import WildcardIndex

FILE_NAME = "rules.snapshot"
MAGIC = "headgate-rules-snapshot"
FORMAT = 7
"""Goes up whenever an older program would misread what a newer one writes, or the other way round."""

MODE = 0o600
"""Mode of the file: rules may name customers, and are served as they are, so only the owner reads or writes them."""

CHUNK = 500
"""Rules per line: about half a millisecond of work, between which others may run."""

STALE_TEMP_S = 3600.0
"""A temporary file this old belongs to a process that was killed; a younger one may be in use."""

_LIMIT_FIELDS = tuple(item.name for item in fields(Limit) if item.init)
_ENUMS: dict[str, Callable[[Any], Any]] = {
    "unit": Unit,
    "algorithm": Algorithm,
    "on_error": OnError,
    "scope": lambda value: None if value is None else Scope(value),
    "traffic_class": lambda value: None if value is None else TrafficClass(value),
    "replaces": tuple,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A rule set that was read back, and when it was saved (unix time, ms)."""

    rules: RuleSet
    saved_ms: int
    files: tuple[KeptFile, ...] = ()
    """The text that the rules were made of."""


def _pause() -> None:
    """Do nothing between two pieces of work: the default, where no loop serves beside it."""


# Writing


class _Encoder:
    """Nodes are in the order in which they were made: children first."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self.limits: list[Limit] = []
        self._limit_index: dict[int, int] = {}
        self._large_slots = 0

    def records(self) -> Iterator[Any]:
        for node in self._rules.nodes:
            level = None
            if node.children is not None:
                level = yield from self._level(node.children)
            yield [None, self._limit(node.limit), level]
        for domain in self._rules.domains.values():
            level = yield from self._level(domain.level)
            yield [domain.name, level, domain.shard_by, domain.request_limits]

    def _level(self, level: Level) -> Generator[Any, None, Any]:
        encoded = []
        for slot in level.values():
            values = yield from self._values(slot)
            ordered = slot.wildcards.ordered if slot.wildcards is not None else ()
            wildcards = [[item.pattern, item.shared, item.node.number] for item in ordered]
            encoded.append([slot.key, values, wildcards, None if slot.any_node is None else slot.any_node.number])
        return encoded

    def _values(self, slot: KeySlot) -> Generator[Any, None, Any]:
        """Small slots as a dict; large ones in parts of their own, and then by number."""
        if len(slot.values) <= CHUNK:
            return slot.values
        number = self._large_slots
        self._large_slots += 1
        items = iter(slot.values.items())
        while part := dict(islice(items, CHUNK)):
            yield [number, part]
        return number

    def _limit(self, limit: Limit | None) -> int | None:
        if limit is None:
            return None
        index = self._limit_index.setdefault(id(limit), len(self.limits))
        if index == len(self.limits):
            self.limits.append(limit)
        return index


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def encode(
    rules: RuleSet, saved_ms: int, pause: Callable[[], None] = _pause, files: Sequence[KeptFile] = ()
) -> Iterator[bytes]:
    """The whole file, in pieces; `pause` is called between them."""
    encoder = _Encoder(rules)
    lines = [_dump([[file.domain, file.path, file.name], b64encode(file.packed).decode()]) for file in files]
    for record in encoder.records():
        lines.append(_dump(record))
        pause()
    head = {
        "digest": rules.version.digest,
        "counter": rules.version.counter,
        "count": rules.count,
        "saved_ms": saved_ms,
        "limits": [[getattr(limit, name) for name in _LIMIT_FIELDS] for limit in encoder.limits],
        "origins": {str(number): dict(origins) for number, origins in rules.origins.items()},
        "overlay": asdict(rules.overlay),
    }
    lines.insert(0, _dump(head))
    checksum = hashlib.sha256()
    for line in lines:
        checksum.update(line)
    yield f"{MAGIC} {FORMAT} {checksum.hexdigest()} {sum(map(len, lines))}\n".encode()
    yield from lines


def save(
    rules: RuleSet,
    directory: Path,
    saved_ms: int,
    pause: Callable[[], None] = _pause,
    files: Sequence[KeptFile] = (),
) -> Path:
    """Write atomically; a kill at any moment leaves the old snapshot or the new one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    temporary = directory / f"{FILE_NAME}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb", opener=_open_private) as file:
            for piece in encode(rules, saved_ms, pause, files):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            written_at = os.fstat(file.fileno()).st_mtime
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(directory)
    _remove_stale(directory, written_at)
    return path


def _open_private(path: str, flags: int) -> int:
    """Open a file for this user alone, even if one of that name was left behind with another mode."""
    handle = os.open(path, flags | os.O_NOFOLLOW, MODE)
    try:
        os.fchmod(handle, MODE)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_stale(directory: Path, now: float) -> None:
    """Remove temporary files of killed processes; `now` comes from the file system, so no clock is read."""
    for path in directory.glob(f"{FILE_NAME}.*.tmp"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > STALE_TEMP_S:
                path.unlink()


# Reading


def load(directory: Path, pause: Callable[[], None] = _pause, *, only_digest: str | None = None) -> Snapshot:
    """The saved set; `only_digest` refuses, without reading on, one of other content."""
    path = directory / FILE_NAME
    try:
        data = _read_ours(path)
    except FileNotFoundError:
        raise NoSnapshot(f"{path}: there is no snapshot") from None
    except OSError as error:
        raise SnapshotError(f"{path}: {error.strerror}") from None
    try:
        return decode(data, pause, only_digest=only_digest)
    except SnapshotError as error:
        raise type(error)(f"{path}: {error}") from None


def _read_ours(path: Path) -> bytes:
    """Read the file if only this user may write it: another user could have rules of their choice served."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise SnapshotError(f"{path}: not used: it is not a plain file")
        if info.st_uid != os.geteuid():
            raise SnapshotError(f"{path}: not used: it belongs to user {info.st_uid}, and this is {os.geteuid()}")
        if stat.S_IMODE(info.st_mode) & ~MODE:
            mode = f"{stat.S_IMODE(info.st_mode):04o}"
            raise SnapshotError(f"{path}: not used: its mode is {mode}, and others than its owner may have written it")
        return file.read()


def decode(data: bytes, pause: Callable[[], None] = _pause, *, only_digest: str | None = None) -> Snapshot:
    """The set that these bytes hold, or a `SnapshotError` that says why they don't."""
    try:
        lines = _check_header(data)
        head = json.loads(next(lines))
        if only_digest is not None and head["digest"] != only_digest:
            raise OtherSnapshot("it holds other rules")
        return _decode(head, lines, pause)
    except (ValueError, TypeError, KeyError, IndexError, StopIteration, RecursionError, AttributeError) as error:
        raise SnapshotError(f"not readable as a snapshot ({type(error).__name__}: {error})") from None


def _check_header(data: bytes) -> Iterator[bytes]:
    end = data.find(b"\n", 0, 256)
    words = data[: max(end, 0)].split(b" ")
    if len(words) != 4 or words[0] != MAGIC.encode():
        raise SnapshotError("not a snapshot of rules")
    if words[1] != str(FORMAT).encode():
        raise SnapshotError(f"format {words[1].decode(errors='replace')}, this program reads format {FORMAT}")
    body = memoryview(data)[end + 1 :]
    if len(body) != int(words[3]):
        raise SnapshotError(f"incomplete: {len(body)} of {int(words[3])} bytes")
    if hashlib.sha256(body).hexdigest().encode() != words[2]:
        raise SnapshotError("damaged: the checksum differs")
    lines = io.BytesIO(data)
    lines.seek(end + 1)
    return lines


class _Decoder:
    def __init__(self, limits: list[Limit]) -> None:
        self._limits = limits
        self._large_slots: dict[int, dict[str, int]] = {}
        self.nodes: list[RuleNode] = []
        self.domains: dict[str, Domain] = {}
        self.files: list[KeptFile] = []

    def record(self, kind: int | str | list[str] | None, *content: Any) -> None:
        if isinstance(kind, list):
            domain, path, name = kind
            self.files.append(KeptFile(domain, path, name, b64decode(*content)))
        elif isinstance(kind, int):
            self._large_slots.setdefault(kind, {}).update(*content)
        elif kind is None:
            limit, level = content
            children = None if level is None else self._level(level)
            self.nodes.append(RuleNode(len(self.nodes), None if limit is None else self._limits[limit], children))
        else:
            level, shard_by, said = content
            request_limits = None if said is None else RequestLimits(said)
            self.domains[kind] = Domain(kind, self._level(level), shard_by, request_limits)

    def _level(self, encoded: list[Any]) -> Level:
        level: Level = {}
        for key, values, wildcards, any_number in encoded:
            slot = level[key] = KeySlot(key)
            slot.values = self._large_slots.pop(values) if isinstance(values, int) else values
            if not all(map(len(self.nodes).__gt__, slot.values.values())):
                raise ValueError("a value names a node that is not there")
            if wildcards:
                slot.wildcards = WildcardIndex([self._wildcard(key, *item) for item in wildcards])
            slot.any_node = None if any_number is None else self.nodes[any_number]
        return level

    def _wildcard(self, key: str, pattern: str, shared: bool, number: int) -> Wildcard:
        return Wildcard(key, pattern, shared=shared, node=self.nodes[number], place=NOWHERE)


def _limit(values: list[Any]) -> Limit:
    named = dict(zip(_LIMIT_FIELDS, values, strict=True))
    for name, kind in _ENUMS.items():
        named[name] = kind(named[name])
    return Limit(**named)


def _overlay(entries: int, clashes: list[Any], unmatched: list[Any]) -> OverlayReport:
    return OverlayReport(
        entries, tuple(Problem(**item) for item in clashes), tuple(Problem(**item) for item in unmatched)
    )


def _decode(head: dict[str, Any], lines: Iterator[bytes], pause: Callable[[], None]) -> Snapshot:
    decoder = _Decoder([_limit(values) for values in head["limits"]])
    for line in lines:
        decoder.record(*json.loads(line))
        pause()
    version = Version(int(head["counter"]), str(head["digest"]))
    origins = {int(number): dict(said) for number, said in head["origins"].items()}
    overlay = _overlay(**head["overlay"])
    rules = RuleSet(decoder.domains, decoder.nodes, version, int(head["count"]), origins=origins, overlay=overlay)
    return Snapshot(rules, int(head["saved_ms"]), tuple(decoder.files))
