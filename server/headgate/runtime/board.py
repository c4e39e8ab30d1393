"""The bulletins of a region's nodes: this one's is posted, all are read, by way of the region's origin.

So nodes need neither know each other's addresses nor be let through to each other. A node that hangs costs nobody any
time: it is seen by the age of its last bulletin. While the origin is away, those that were read last are told, with
their ages and why.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.clock import Clock
from headgate.errors import BadRequest
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.bulletins import WANTED_MS, Bulletin, PostBulletin, ReadBulletins
from headgate.runtime.bulletin import BulletinWriter, decode, encode
from headgate.runtime.trend import asked_grain

POST_S: Final = 2.0
"""Seconds between two bulletins: the finest step of what they tell."""
TIMEOUT_S: Final = 0.9
"""Timeout of one operation. No request waits for it."""
READ_KEPT_S: Final = 1.0
"""Time for which what was read is good enough for everybody who asks."""


class RegionBoard:
    """Bulletins as one process posts and reads them. `run` posts until cancelled."""

    def __init__(
        self, writer: BulletinWriter, run: bytes, origin: Origin | None, shard: Callable[[], int], clock: Clock
    ) -> None:
        """`origin`: None for a node on its own. `shard` keeps the bulletins."""
        self.failures = 0
        """Posts and reads that failed."""
        self._writer = writer
        self._run = run
        self._origin = origin
        self._shard = shard
        self._clock = clock
        self._wanted_here: dict[str, float] = {}
        """Time until which this process has to tell what goes on, by grain."""
        self._wanted_there: tuple[str, ...] = ()
        self._left = False
        self._others: list[dict[str, Any]] = []
        self._read_s = float("-inf")
        """Time of the last read that was answered."""
        self._asked_s: dict[str, float] = {}
        """Time of the last read, answered or not, by grain."""
        self._error = ""
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            await self.post()
            await asyncio.sleep(POST_S)

    async def leave(self) -> None:
        """Take the bulletin away: this node is not missed."""
        self._left = True
        if self._origin is not None:
            await self._ask(self._origin, PostBulletin(self._run, b""))

    async def tell(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Tell all bulletins, with their ages; `own=true`: this process's alone. Raises BadRequest."""
        grain = str(asked_grain(query))
        self._wanted_here[grain] = self._clock.monotonic() + WANTED_MS / 1000
        own = {**self._writer.write([grain]), "age_ms": 0}
        if self._origin is None or query.get("own") == "true":
            return {"node": own["node"], "error": "", "bulletins": [own]}
        async with self._turn:
            await self._read(self._origin, grain)
        late_ms = int((self._clock.monotonic() - self._read_s) * 1000) if self._others else 0
        others = [{**said, "age_ms": said["age_ms"] + late_ms} for said in self._others]
        return {"node": own["node"], "error": self._error, "bulletins": [own, *others]}

    async def post(self) -> None:
        """Post this process's bulletin, and hear what is looked for."""
        now_s = self._clock.monotonic()
        self._wanted_here = {grain: until_s for grain, until_s in self._wanted_here.items() if until_s > now_s}
        grains = sorted({*self._wanted_here, *self._wanted_there})
        if grains:
            await self._writer.look()
        if self._origin is None:
            return
        content = await asyncio.to_thread(encode, self._writer.write(grains))
        if self._left:
            return
        posted = await self._ask(self._origin, PostBulletin(self._run, content))
        self._wanted_there = () if posted is None else tuple(filter(_is_grain, map(_text, posted.wanted)))

    async def _read(self, origin: Origin, grain: str) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._asked_s.get(grain, float("-inf")) < READ_KEPT_S:
            return
        found: tuple[Bulletin, ...] | None = await self._ask(origin, ReadBulletins(grain.encode()))
        self._asked_s[grain] = self._clock.monotonic()
        if found is not None:
            self._others = await asyncio.to_thread(_decoded, [one for one in found if one.run != self._run])
            self._read_s = self._clock.monotonic()

    async def _ask(self, origin: Origin, operation: Any) -> Any:
        """Ask the shard; None, and `_error`, where it does not answer."""
        try:
            answer = await origin.run(self._shard(), operation, TIMEOUT_S)
        except OriginError as error:
            self.failures += 1
            self._error = str(error)
            return None
        self._error = ""
        return answer


def _decoded(found: list[Bulletin]) -> list[dict[str, Any]]:
    return [{**decode(one.run, one.content), "age_ms": max(0, one.age_ms)} for one in found]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _is_grain(name: str) -> bool:
    """A newer version may look for something that this one does not know."""
    try:
        asked_grain({"grain_s": name})
    except BadRequest:
        return False
    return True
