"""The other regions, as configured: given once, or in a file that is followed while regions come and go.

The file has a line `REGION=ADDR` for each other region; blank lines and lines that begin with `#` don't count, and none
at all means that there is no other region yet. A file that can't be used changes nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.config.kinds import PEER, Peer, parse_peer
from headgate.endpoint.files import read_bounded
from headgate.endpoint.followed import FollowedFile
from headgate.errors import ConfigError

MOST_PEERS: Final = 100
"""Peers in a file. Ten are many; each is a connection and a task."""
MAX_FILE_BYTES: Final = 64 * 1024

_SETTING: Final = "peer_file"

OnChange = Callable[[], Awaitable[None]]
CheckPeer = Callable[[Peer], None]
"""Raises ConfigError for a peer that this region may not speak to."""


class PeerList:
    """Peers that are in force."""

    def __init__(self, given: tuple[Peer, ...] = (), file: "PeerFile | None" = None) -> None:
        self.now = given if file is None else file.kept
        """Peers at present. Changes on the loop only."""
        self._file = file
        self._listeners: list[OnChange] = []
        if file is not None:
            file.on_change = self._changed

    @property
    def names(self) -> frozenset[str]:
        return frozenset(peer.region for peer in self.now)

    @property
    def error(self) -> str:
        """Reason why the file as it is now is not in force; empty when it is."""
        return "" if self._file is None else self._file.error

    def listen(self, on_change: OnChange) -> None:
        """Have `on_change` called, on the loop, whenever `now` has become another; in the order of these calls."""
        self._listeners.append(on_change)

    @property
    def is_followed(self) -> bool:
        """True if there is a file: `watch` it."""
        return self._file is not None

    async def watch(self) -> None:
        """Follow the file until cancelled."""
        if self._file is not None:
            await self._file.watch()

    async def _changed(self, peers: tuple[Peer, ...]) -> None:
        if peers != self.now:
            self.now = peers
            for listener in self._listeners:
                await listener()


class PeerFile(FollowedFile[tuple[Peer, ...]]):
    """The file. Raises ConfigError at first."""

    def __init__(self, path: str, region: str, check: CheckPeer, logger: FilteringBoundLogger) -> None:
        super().__init__(path, logger, lambda path: read_peers(path, region, check), "peers")
        self.on_change: Callable[[tuple[Peer, ...]], Awaitable[None]] | None = None

    def log_reloaded(self) -> None:
        self.logger.info("peers_reloaded", file=self.path, peers=len(self))

    def log_failed(self) -> None:
        self.logger.warning("peers_reload_failed", reason=self.error, peers=len(self))

    async def changed(self) -> None:
        if self.on_change is not None:
            await self.on_change(self.kept)


def read_peers(path: str, region: str, check: CheckPeer) -> tuple[Peer, ...]:
    """Peers of region `region`, in the file's order. Raises ConfigError with file and line."""
    try:
        text = read_bounded(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{_SETTING} {path}: is not UTF-8 at byte {error.start}") from None
    except ConfigError as error:
        raise ConfigError(f"{_SETTING} {error}") from error
    found: dict[str, Peer] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            peer = _peer(stripped, f"{_SETTING} {path}:{number}", region, check)
            if peer.region in found:
                raise ConfigError(f"{_SETTING} {path}:{number}: {peer.region!r} is given twice")
            found[peer.region] = peer
    if len(found) > MOST_PEERS:
        raise ConfigError(f"{_SETTING} {path}: {len(found)} peers, at most {MOST_PEERS} are accepted")
    return tuple(found.values())


def _peer(line: str, at: str, region: str, check: CheckPeer) -> Peer:
    try:
        peer = parse_peer(line)
        check(peer)
    except ValueError as error:
        raise ConfigError(f"{at}: {str(error) or f'expected {PEER.accepts}, got {line!r}'}") from None
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from error
    if peer.region == region:
        raise ConfigError(f"{at}: {region!r} is this region itself: name only the others")
    return peer
