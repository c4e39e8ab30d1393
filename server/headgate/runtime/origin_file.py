"""The file that holds the origin's URL, followed while it changes: nodes come to want the list of shards in it.

Only the list may change while a process runs. Passwords are read again with each connection anyway; another kind of
origin, database or TLS is another origin, and is refused by name.
"""

from collections.abc import Callable
from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.followed import FollowedFile
from headgate.errors import ConfigError
from headgate.origin.redis_origin.secrets import FILE_SCHEME, read_url
from headgate.origin.redis_origin.url import Credentials, RedisUrl, Topology


class OriginFile(FollowedFile[tuple[str, ...]]):
    """Names of the shards in the file."""

    def __init__(self, origin: str, logger: FilteringBoundLogger, on_change: Callable[[tuple[str, ...]], None]) -> None:
        first = read_url(origin)
        path = origin.removeprefix(FILE_SCHEME)
        super().__init__(path, logger, lambda _path: _listed(origin, path, first), "origin")
        self._on_change = on_change

    def log_reloaded(self) -> None:
        self.logger.info("origin_file_reloaded", shards=len(self.kept))

    def log_failed(self) -> None:
        self.logger.error("origin_file_refused", reason=self.error)

    async def changed(self) -> None:
        try:
            self._on_change(self.kept)
        except ConfigError as error:
            self.error = str(error)
            self.log_failed()


def _listed(origin: str, path: str, first: RedisUrl) -> tuple[str, ...]:
    """Read the list. Raises ConfigError for another origin than the process began with."""
    url = read_url(origin)
    if _all_but_the_list(url) != _all_but_the_list(first):
        raise ConfigError(
            f"{path}: only the list of {'services' if first.services else 'servers'} may change while a process runs: "
            "for another kind of origin, database or TLS start it anew"
        )
    return url.listed


def _all_but_the_list(url: RedisUrl) -> RedisUrl:
    nobody = Credentials()
    same = replace(url, services=(), credentials=nobody, sentinel_credentials=nobody)
    return replace(same, addresses=()) if url.kind is Topology.SHARDS else same
