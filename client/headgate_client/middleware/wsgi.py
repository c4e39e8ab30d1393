"""Limits for a WSGI application: Flask, Django, Bottle.

```python
app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limiter, key=lambda request: {"path": request.path})
```
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headgate_client.arguments import OnError
from headgate_client.client import Headgate
from headgate_client.middleware.gate import CostGiven, Gate, KeyFunction, check_body, need, refuse_coroutines
from headgate_client.middleware.http import BODY, CONTENT_TYPE, HttpRequest, Peer, limit_headers

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class RateLimitMiddleware:
    """Wraps an application. The other options are those of `Gate`; `body` is what a denial says."""

    def __init__(
        self,
        app: "WSGIApplication",
        limiter: Headgate,
        key: KeyFunction[HttpRequest],
        *,
        cost: CostGiven[HttpRequest] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
        body: bytes = BODY,
        content_type: str = CONTENT_TYPE,
    ) -> None:
        need(limiter, Headgate, "WSGI")
        refuse_coroutines(key, cost, "WSGI")
        self.app = app
        self.gate: Gate[HttpRequest] = Gate(key, cost=cost, exempt=exempt, dry_run=dry_run, on_error=on_error)
        self._limiter = limiter
        self._body = check_body(body)
        self._content_type = content_type

    def __call__(self, environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        request = request_of(environ)
        decision = self.gate.check(self._limiter, request, request.path)
        if decision is None:
            return self.app(environ, start_response)
        headers = limit_headers(decision)
        if not self.gate.passes(decision, request.path):
            own = [("Content-Type", self._content_type), ("Content-Length", str(len(self._body)))]
            start_response("429 Too Many Requests", [*headers, *own])
            return [] if request.method == "HEAD" else [self._body]
        if self.gate.dry_run:
            return self.app(environ, start_response)

        def start_with_headers(status: str, given: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
            return start_response(status, [*given, *headers], exc_info)

        return self.app(environ, start_with_headers)


def request_of(environ: dict[str, Any]) -> HttpRequest:
    host = environ.get("REMOTE_ADDR")
    port = environ.get("REMOTE_PORT") or 0
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    # WSGI's text is bytes in latin-1's clothes.
    path = path.encode("latin-1").decode("utf-8", "replace")
    return HttpRequest(environ["REQUEST_METHOD"], path, Peer(host, int(port)) if host else None, environ)
