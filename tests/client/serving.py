"""Applications on real sockets, within the process, for tests of middleware."""

import contextlib
import socketserver
import threading
import wsgiref.simple_server
from collections.abc import Iterator
from typing import Any

import uvicorn

from tests.support.headgate import Answer, http_request
from tests.support.waiting import PATIENCE_S, wait_until


@contextlib.contextmanager
def serve_asgi(app: Any, **options: Any) -> Iterator[str]:
    """The address of an ASGI application."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", proxy_headers=False, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "uvicorn")
        yield "{}:{}".format(*server.servers[0].sockets[0].getsockname()[:2])
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name there
        pass


class _Threaded(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    """A thread for each request, all of which end with the server."""

    daemon_threads = False


@contextlib.contextmanager
def serve_wsgi(app: Any) -> Iterator[str]:
    """The address of a WSGI application."""
    with wsgiref.simple_server.make_server("127.0.0.1", 0, app, _Threaded, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


def get(address: str, path: str = "/", **headers: str) -> Answer:
    """With headers whose names have underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http_request(address, "GET", path, headers=named)
