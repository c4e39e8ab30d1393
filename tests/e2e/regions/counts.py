"""What the origins of several regions really count, read by somebody who counts nothing himself."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog
from headgate.clock import SystemClock
from headgate.keys.peek_key import CellPeek, PeekKey, WindowPeek
from headgate.origin.exchange_protocol import Priority
from headgate.origin.interface import Origin, OriginError
from headgate.origin.names import exchange_name
from headgate.origin.operations.call import Call
from headgate.origin.operations.read_components import ReadComponents
from headgate.origin.protocol import WindowAnswer, WindowReport
from headgate.origin.select import open_origin
from headgate.rules.directory import load_directory

from tests.support.waiting import PATIENCE_S

SILENT: Final = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])


class Counts:
    """One connection to each region's origin, for as long as it is open."""

    def __init__(self, rules: Path, domain: str, urls: Mapping[str, str]) -> None:
        self._rules = load_directory(rules)
        self._domain = domain
        self._runner = asyncio.Runner()
        self._origins = {
            region: open_origin(url, clock=SystemClock(), region=region, logger=SILENT) for region, url in urls.items()
        }

    def __enter__(self) -> "Counts":
        for origin in self._origins.values():
            self._runner.run(origin.open())
        return self

    def __exit__(self, *_: object) -> None:
        for origin in self._origins.values():
            self._runner.run(origin.close())
        self._runner.close()

    def read(self, key: str, value: str, regions: Sequence[str] = ()) -> dict[str, dict[str, int]]:
        """Whose component each region's origin knows, in the current window: `{where: {whose: count}}`.

        Where an origin does not answer, nothing.
        """
        wanted = regions or list(self._origins)
        return {where: self._runner.run(self._read(key, value, where)) for where in wanted}

    async def _read(self, key: str, value: str, where: str) -> dict[str, int]:
        match = self._rules.match(self._domain, [(key, value)])
        assert match is not None
        origin, limit = self._origins[where], match.limit
        name = exchange_name(match.key, match.key, limit.window_ms)
        report = WindowReport(match.key, b"observer", 1, 0, 0, 1, limit.window_ms, 0, True, True, ())
        try:
            found = await self._components(origin, where, match.key, name)
            reply = await origin.run(origin.shard_of(match.key), Call((report,), ()), PATIENCE_S)
        except OriginError:
            return {}
        (answer,) = reply.answers
        assert isinstance(answer, WindowAnswer)
        assert answer.previous[1:] == (0, 0)
        # What decides is the sum: it has to be that of the components, or something counts twice or not at all.
        abroad = sum(count for whose, count in found.items() if whose != where)
        return found if (found[where], abroad) == answer.current[1:] else {**found, "sum": answer.current.foreign}

    def look(self, key: str, value: str) -> dict[str, CellPeek]:
        """What each region's origin has in the current window; nothing, where it has none or does not answer."""
        return {where: self._runner.run(self._look(key, value, where)) for where in self._origins}

    async def _look(self, key: str, value: str, where: str) -> CellPeek:
        match = self._rules.match(self._domain, [(key, value)])
        assert match is not None
        origin = self._origins[where]
        try:
            found = await origin.run(origin.shard_of(match.key), PeekKey(match.key, match.limit.window_ms), PATIENCE_S)
        except OriginError:
            return CellPeek()
        return found.record.current if isinstance(found.record, WindowPeek) else CellPeek()

    async def _components(self, origin: Origin, where: str, key: bytes, name: bytes) -> dict[str, int]:
        found = dict.fromkeys(self._origins, 0)
        for peer in self._origins:
            if peer == where:
                continue
            (published,) = await origin.run(
                origin.shard_of(key), ReadComponents(peer.encode(), Priority.NORMAL, [name]), PATIENCE_S
            )
            if published is not None:
                found[where], found[peer] = published.current, published.peer_current
        return found
