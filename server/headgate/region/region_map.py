"""A node's copy of its region's map, and how it keeps up with the shard.

A heartbeat's answer says how far the map has come; what changed is fetched, nothing else. A shard that has lost the
map, or some of it, is taught all that this node knows, and so does every other node. While the shard is away the node
goes on with what it knows; with a data directory also over a restart. Entries end by themselves, by the shard's time.
"""

import asyncio
import base64
import contextlib
import json
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.region_map import MAP_KEY, MOST_NAMES, MapEntry, MapMark, MapState, made_now

PAGE: Final = 500
"""Entries in one call: some milliseconds of the shard's time."""
TIMEOUT_S: Final = 0.9
"""Timeout of one operation on the map. No request waits for it."""
RETRY_S: Final = 1.0
"""Pause after an operation that failed: the heartbeat's period."""
GENERATION_BYTES: Final = 8
FILE_NAME: Final = "book.json"
MAX_FILE_BYTES: Final = 256 * 1024 * 1024

OnChange = Callable[[Sequence[MapEntry]], None]
"""Called with what is new or gone: an entry that is gone has no value."""


@dataclass(slots=True)
class RegionMapStats:
    """Plain counters, read by whoever exports them."""

    syncs: int = 0
    """Times that something was fetched, or tried to be."""
    failures: int = 0
    taught: int = 0
    """Entries that a shard which lacked them was told."""


class RegionMapReplica:
    """This node's copy. `run` keeps it current until cancelled."""

    def __init__(
        self,
        origin: Origin,
        *,
        now_ms: Callable[[], int],
        random: random.Random,
        logger: FilteringBoundLogger,
        data_dir: Path | None = None,
    ) -> None:
        self.shard = origin.shard_of(MAP_KEY)
        self.now_ms = now_ms
        """The time of the shard that keeps the map."""
        self.stats = RegionMapStats()
        self._origin = origin
        self._random = random
        self._logger = logger
        self._data_dir = data_dir
        self.on_keep: Callable[[MapEntry], None] = lambda entry: None
        """Called with what is kept here while the shard is away: who else can be told is told."""
        self._listeners: list[OnChange] = []
        self._entries = {entry.name: entry for entry in read_map_file(data_dir)}
        self._expires_ms = math.inf
        """Time at which the first of them expires."""
        self._note_expiry()
        self._mark = MapMark()
        """Point that this copy has reached."""
        self._heard = MapMark()
        self._epoch = b""
        self._unsure = bool(self._entries)
        """The shard may lack something that this copy has."""
        self._wanted = asyncio.Event()
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def listen(self, on_change: OnChange) -> None:
        """Tell of changes from now on; of what is known already at once."""
        self._listeners.append(on_change)
        on_change(list(self._entries.values()))

    def get(self, name: bytes) -> bytes | None:
        """The value of an entry that is there."""
        entry = self._entries.get(name)
        return entry.value if entry is not None and entry.value else None

    def heard(self, mark: MapMark, epoch: bytes) -> None:
        """A heartbeat of the map's shard was answered."""
        # Another run of the server may be a replica that lacks the latest changes, whatever its numbers say.
        self._unsure |= bool(self._epoch) and epoch != self._epoch and bool(self._entries)
        self._epoch, self._heard = epoch, mark
        if mark != self._mark or self._unsure:
            self._wanted.set()

    def keep_at(self, shard: int, now_ms: Callable[[], int]) -> None:
        """Keep the map on another shard from now on: it is taught what this copy has."""
        if shard != self.shard:
            self.shard, self.now_ms = shard, now_ms
            self._mark, self._heard, self._epoch = MapMark(), MapMark(), b""
            self._unsure = bool(self._entries)
            self._wanted.set()

    async def run(self) -> None:
        """Keep up until cancelled."""
        while True:
            await self._wanted.wait()
            if not await self._try():
                await asyncio.sleep(RETRY_S)

    async def write(self, entries: Sequence[MapEntry]) -> MapState:
        """Write, and know it here as soon as it is written. Raises OriginError."""
        state = await self._origin.run(self.shard, WriteMap(entries, self._generation()), TIMEOUT_S)
        self._wanted.set()
        await self._try()
        return state

    async def keep(self, entry: MapEntry) -> None:
        """Have an entry that could not be written in force here; the shard is taught it as soon as it answers."""
        latest = max((known.stamp for known in self._entries.values()), default=0)
        made = made_now(entry, self._entries.get(entry.name), latest, self.now_ms())
        if made is not None and self.learn(made):
            self.on_keep(made)
            await self._save()

    def learn(self, entry: MapEntry) -> bool:
        """Take in an entry that the shard may not know; it is taught it as soon as it answers. False: it is known."""
        if not self._merge([entry]):
            return False
        self._unsure = True
        self._wanted.set()
        return True

    async def refresh(self) -> None:
        """Fetch what is new now, as far as the shard answers."""
        self._wanted.set()
        await self._try()

    def expire(self) -> None:
        """Let go of what is over. Costs nothing while nothing is, so it may be called often."""
        now_ms = self.now_ms()
        if now_ms < self._expires_ms:
            return
        over = [entry for entry in self._entries.values() if 0 < entry.expires_ms <= now_ms]
        for entry in over:
            del self._entries[entry.name]
        self._note_expiry()
        self._tell([entry._replace(value=b"") for entry in over if entry.value])

    async def _try(self) -> bool:
        async with self._turn:
            if not self._wanted.is_set():
                return True
            self._wanted.clear()
            self.stats.syncs += 1
            try:
                changed = await self._sync()
            except OriginError as error:
                self.stats.failures += 1
                self._wanted.set()
                self._logger.debug("book_unread", reason=str(error))
                return False
        if changed:
            await self._save()
        return True

    async def _save(self) -> None:
        if self._data_dir is not None:
            await asyncio.to_thread(write_map_file, self._data_dir, list(self._entries.values()))

    async def _sync(self) -> bool:
        """Fetch what is new, after teaching what the shard lacks. Whether anything changed here."""
        page = await self._origin.run(self.shard, ReadMap(self._mark.version, PAGE), TIMEOUT_S)
        lost = page.mark.generation != self._mark.generation or page.mark.version < self._mark.version
        if lost or self._unsure:
            await self._teach()
            page = await self._origin.run(self.shard, ReadMap(0, PAGE), TIMEOUT_S)
        changed = self._merge(page.entries)
        while page.until < page.mark.version:
            page = await self._origin.run(self.shard, ReadMap(page.until, PAGE), TIMEOUT_S)
            changed |= self._merge(page.entries)
        self._mark = page.mark
        return changed

    async def _teach(self) -> None:
        entries = list(self._entries.values())
        for first in range(0, len(entries), PAGE):
            chunk = entries[first : first + PAGE]
            await self._origin.run(self.shard, WriteMap(chunk, self._generation()), TIMEOUT_S)
        if entries:
            self.stats.taught += len(entries)
            self._logger.info("book_taught", shard=self.shard, entries=len(entries))
        self._unsure = False

    def _merge(self, entries: Iterable[MapEntry]) -> bool:
        now_ms = self.now_ms()
        newer = [
            entry
            for entry in entries
            if (known := self._entries.get(entry.name)) is None or entry.stamp > known.stamp
            if not 0 < entry.expires_ms <= now_ms
        ]
        for entry in newer:
            self._entries[entry.name] = entry
        self._note_expiry()
        self._tell(newer)
        return bool(newer)

    def _tell(self, changed: Sequence[MapEntry]) -> None:
        if changed:
            for listener in self._listeners:
                listener(changed)

    def _note_expiry(self) -> None:
        self._expires_ms = min(
            [entry.expires_ms for entry in self._entries.values() if entry.expires_ms], default=math.inf
        )

    def _generation(self) -> bytes:
        return b"%016x" % self._random.getrandbits(8 * GENERATION_BYTES)


def read_map_file(data_dir: Path | None) -> list[MapEntry]:
    """Read what was kept last; nothing where there is no file, or one that is torn."""
    if data_dir is None:
        return []
    path = data_dir / FILE_NAME
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return []
        rows = json.loads(path.read_bytes())
        entries = [entry_of(row) for row in rows]
    except (OSError, ValueError, TypeError):
        return []
    return [entry for entry in entries if entry.stamp > 0][:MOST_NAMES]


def row_of(entry: MapEntry) -> tuple[str, str, int, int]:
    """Write an entry as JSON can hold it."""
    name, value = base64.b64encode(entry.name).decode(), base64.b64encode(entry.value).decode()
    return name, value, entry.expires_ms, entry.stamp


def entry_of(row: Sequence[Any]) -> MapEntry:
    """Read what `row_of` wrote. Raises ValueError or TypeError."""
    name, value, expires_ms, stamp = row
    return MapEntry(base64.b64decode(name), base64.b64decode(value), int(expires_ms), int(stamp))


@lru_cache(MOST_NAMES)
def _row(entry: MapEntry) -> str:
    """An entry as the file has it. Remembered: of thousands one changes, and the file is written whole."""
    return json.dumps(row_of(entry))


def write_map_file(data_dir: Path, entries: Sequence[MapEntry]) -> None:
    """Atomic, for the process's user alone, and best effort: a full disk must not stop anything."""
    text = "[" + ", ".join(map(_row, entries)) + "]"
    temporary = data_dir / f".{FILE_NAME}.{os.getpid()}"
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        temporary.replace(data_dir / FILE_NAME)
