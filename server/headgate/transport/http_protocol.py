"""aiohttp's protocol of one connection, as this server has it: errors that name nobody, an end that is told.

What aiohttp answers by itself, to bytes that are no HTTP, says which Python and which aiohttp it is, and repeats what
was sent; here it is `400` in the form of all errors. What is behind it is logged for nobody: anybody can send garbage.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

Left = Callable[[web.RequestHandler], None]
"""Called when a connection has ended."""
SERVER_NAME = "headgate"


class HttpProtocol(web.RequestHandler):
    """One connection of a listener."""

    __slots__ = ("_left",)

    def __init__(self, server: web.Server, left: Left, **bounds: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None, **bounds)  # type: ignore[arg-type]
        self._left = left

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._left(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request at all; whatever else fails is answered by the listener itself."""
        if status >= 500:
            self.log_exception("http request failed", exc_info=exc)
        response = error_response(status, "not HTTP as this server speaks it" if status < 500 else "internal error")
        response.force_close()
        return response


def error_response(status: int, message: str) -> web.Response:
    """An error as JSON: `{"error": message}`."""
    return web.json_response({"error": message}, status=status, headers={"Server": SERVER_NAME})
