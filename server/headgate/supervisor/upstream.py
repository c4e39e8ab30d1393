"""HTTP to one worker, over its private socket.

Every call is bounded in time and size. A worker that can't be asked is one of two errors, because a caller may try
another worker after one of them only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""Twice the longest that a worker shows, the metrics of ten thousand rules; N of them are held at a time."""

_HOST = "http://worker"

_ONE_HOP = frozenset(
    ("connection", "content-length", "date", "host", "keep-alive", "server", "te", "transfer-encoding", "upgrade")
)
"""Headers that are about the connection, or that each server writes itself."""


class NoAnswer(Exception):
    """The worker took the request, or may have, and did not answer in time."""


class NotReached(NoAnswer):
    """The worker never saw the request: another one may be asked."""


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """A worker's whole HTTP answer."""

    status: int
    headers: CIMultiDict[str]
    body: bytes


def end_to_end(headers: Mapping[str, str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Drop the headers that concern one connection alone."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _ONE_HOP)


class Upstream:
    """The HTTP client of one worker, from construction to `close`."""

    def __init__(self, path: str) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path),
            cookie_jar=aiohttp.DummyCookieJar(),
            # What passes through stays as it is.
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )

    async def close(self) -> None:
        await self._session.close()

    async def get(self, target: str, timeout_s: float) -> WorkerAnswer:
        return await self._ask("GET", target, timeout_s)

    async def post(self, target: str, timeout_s: float, headers: CIMultiDict[str], body: bytes) -> WorkerAnswer:
        return await self._ask("POST", target, timeout_s, headers=headers, data=body)

    async def _ask(self, method: str, target: str, timeout_s: float, **more: Any) -> WorkerAnswer:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            url = URL(_HOST + target, encoded=True)
            async with self._session.request(method, url, timeout=timeout, allow_redirects=False, **more) as response:
                return WorkerAnswer(response.status, end_to_end(response.headers), await _bounded(response))
        except aiohttp.ClientConnectorError as error:
            raise NotReached(f"can't be reached: {error.strerror}") from error
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"ended before it answered: {type(error).__name__}") from error


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise NoAnswer(f"answers with more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
