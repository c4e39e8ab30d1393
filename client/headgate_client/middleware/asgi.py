"""Limits for an ASGI application: Starlette, FastAPI, Litestar, Quart, Django's ASGI.

```python
app = FastAPI()
app.add_middleware(RateLimitMiddleware, limiter=limiter, key=lambda request: {"user": request.headers["x-user"]})
```

Requests and WebSocket handshakes are limited; everything else passes. A denial is a 429.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from headgate_client.aio import AsyncHeadgate
from headgate_client.arguments import OnError
from headgate_client.middleware.gate import CostGiven, Gate, KeyFunction, check_body, need
from headgate_client.middleware.http import BODY, CONTENT_TYPE, HttpRequest, Peer, limit_headers
from headgate_client.values import Decision

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TRY_AGAIN_LATER = 1013
"""The code with which a WebSocket is closed where the server can't answer a handshake with a 429."""


class RateLimitMiddleware:
    """Wraps an application. The other options are those of `Gate`; `body` is what a denial says."""

    def __init__(
        self,
        app: App,
        limiter: AsyncHeadgate,
        key: KeyFunction[HttpRequest],
        *,
        cost: CostGiven[HttpRequest] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
        body: bytes = BODY,
        content_type: str = CONTENT_TYPE,
    ) -> None:
        need(limiter, AsyncHeadgate, "ASGI")
        self.app = app
        self.gate: Gate[HttpRequest] = Gate(key, cost=cost, exempt=exempt, dry_run=dry_run, on_error=on_error)
        self._limiter = limiter
        self._body = check_body(body)
        self._content_type = content_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        request = request_of(scope)
        decision = await self.gate.check_async(self._limiter, request, request.path)
        if decision is None:
            await self.app(scope, receive, send)
        elif not self.gate.passes(decision, request.path):
            await self._deny(scope, send, decision)
        elif self.gate.dry_run or scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send, encoded(decision)))

    async def _deny(self, scope: Scope, send: Send, decision: Decision) -> None:
        kind = scope["type"]
        if kind == "websocket":
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
                return
            kind = "websocket.http"
        headers = [
            *encoded(decision),
            (b"content-type", self._content_type.encode("latin-1")),
            (b"content-length", b"%d" % len(self._body)),
        ]
        await send({"type": f"{kind}.response.start", "status": 429, "headers": headers})
        await send({"type": f"{kind}.response.body", "body": self._body})


def request_of(scope: Mapping[str, Any]) -> HttpRequest:
    client = scope.get("client")
    # An empty host is how servers say that the other end has no address.
    peer = Peer(client[0], client[1]) if client and client[0] else None
    return HttpRequest(scope.get("method", "GET"), scope["path"], peer, scope)


def encoded(decision: Decision) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in limit_headers(decision)]


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers]
        await send(message)

    return send_with_headers
