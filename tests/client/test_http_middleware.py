"""ASGI and WSGI applications with limits, over sockets: the same for both."""

import asyncio
import contextlib
import enum
import math
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from headgate_client.middleware import asgi, wsgi
from headgate_client.middleware.http import HttpRequest, limit_headers
from headgate_client.spread import SPREAD
from headgate_client.testing import FakeServer

from tests.client.serving import get, serve_asgi, serve_wsgi
from tests.support.headgate import http_request

Served = contextlib.AbstractContextManager[tuple[str, Any]]
Serve = Callable[..., Served]


def by_user(request: HttpRequest) -> dict[str, str] | None:
    user = request.headers.get("x-user", "nobody")
    return None if user == "admin" else {"user": user}


async def asgi_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    headers = [(b"content-type", b"text/plain"), (b"x-own", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def wsgi_app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Own", "1")])
    return [b"hello"]


@pytest.fixture
def server(headgate_server: FakeServer) -> FakeServer:
    headgate_server.limit("edge", "2/minute", user="*")
    return headgate_server


@pytest.fixture(params=["asgi", "wsgi"])
def serve(request: pytest.FixtureRequest, server: FakeServer) -> Serve:
    @contextlib.contextmanager
    def serve(key: Any = by_user, **options: Any) -> Iterator[tuple[str, Any]]:
        if request.param == "asgi":
            over_asgi = asgi.RateLimitMiddleware(asgi_app, server.async_client("edge"), key, **options)
            with serve_asgi(over_asgi, lifespan="off") as address:
                yield address, over_asgi
        else:
            over_wsgi = wsgi.RateLimitMiddleware(wsgi_app, server.client("edge"), key, **options)
            with serve_wsgi(over_wsgi) as address:
                yield address, over_wsgi

    return serve


def test_denials_of_one_answer_are_told_times_apart(server: FakeServer) -> None:
    """The client remembers one denial, and each of its callers is told another time: reset and wait alike."""
    limiter = server.client("edge")
    for _ in range(2):
        limiter.check(user="alice")
    denied = limiter.check(user="alice")
    chance = random.Random(2)
    answers = [dict(limit_headers(denied, chance.random)) for _ in range(55)]
    assert all(answer["RateLimit-Reset"] == answer["Retry-After"] for answer in answers)
    assert all(answer["RateLimit"] == f'"2 per 60 s";r=0;t={answer["Retry-After"]}' for answer in answers)
    waits = {int(answer["Retry-After"]) for answer in answers}
    assert denied.retry_after <= min(waits) < max(waits) <= math.ceil(denied.retry_after * (1 + SPREAD))
    assert len(waits) > 8


def test_answers_say_what_is_left_and_a_denial_when_to_come_back(serve: Serve, server: FakeServer) -> None:
    with serve() as (address, _):
        first, second, third = (get(address, x_user="alice") for _ in range(3))
        assert [answer.status for answer in (first, second, third)] == [200, 200, 429]
        assert (first.body, first.headers["x-own"]) == (b"hello", "1")
        assert first.headers["ratelimit-limit"] == "2"
        assert [answer.headers["ratelimit-remaining"] for answer in (first, second, third)] == ["1", "0", "0"]
        assert 60 <= int(first.headers["ratelimit-reset"]) <= 72
        assert first.headers["ratelimit-policy"] == '"2 per 60 s";q=2;w=60'
        assert first.headers["ratelimit"] == f'"2 per 60 s";r=1;t={first.headers["ratelimit-reset"]}'
        assert "retry-after" not in first.headers
        wait_s = server.client("edge").check(user="alice").retry_after
        assert wait_s <= int(third.headers["retry-after"]) <= math.ceil(wait_s * (1 + SPREAD))
        assert third.json() == {"error": "too many requests"}
        assert third.headers["content-type"] == "application/json"
        assert get(address, x_user="bob").status == 200
        server.clock.advance(120)
        assert get(address, x_user="alice").status == 200


def test_a_head_request_is_denied_without_a_body(serve: Serve) -> None:
    with serve() as (address, _):
        answers = [http_request(address, "HEAD", "/") for _ in range(3)]
        assert [(answer.status, answer.body) for answer in answers] == [(200, b""), (200, b""), (429, b"")]


def test_exemptions_by_key_and_by_path(serve: Serve, server: FakeServer) -> None:
    with serve(exempt=["/healthz", "/static/*"]) as (address, _):
        for path, user in (("/healthz", "a"), ("/static/x/y.css", "a"), ("/", "admin")):
            answers = [get(address, path, x_user=user) for _ in range(4)]
            assert {answer.status for answer in answers} == {200}
            assert "ratelimit-limit" not in answers[0].headers
        assert server.requests == []
        assert [get(address, "/healthz/x", x_user="a").status for _ in range(3)] == [200, 200, 429]


def test_a_dry_run_denies_nobody_and_counts_whom_it_would_have(serve: Serve, server: FakeServer) -> None:
    with serve(dry_run=True) as (address, middleware):
        answers = [get(address, x_user="alice") for _ in range(5)]
        assert {answer.status for answer in answers} == {200}
        assert "ratelimit-limit" not in answers[0].headers
        assert middleware.gate.would_deny == 3
        assert len(server.requests) == 3, "charged as ever, and denials known"


def test_costs_and_several_descriptors(serve: Serve, server: FakeServer) -> None:
    server.limit("edge", "5/minute", path="*")

    def key(request: HttpRequest) -> list[dict[str, str]]:
        return [{"path": request.path}, {"user": request.headers["x-user"]}]

    with serve(key, cost=lambda request: int(request.headers.get("x-cost", "1"))) as (address, _):
        assert get(address, "/a", x_user="a", x_cost="2").status == 200
        assert get(address, "/a", x_user="b", x_cost="2").headers["ratelimit-remaining"] == "0"
        assert get(address, "/a", x_user="c", x_cost="2").status == 429
        assert get(address, "/a", x_user="c").status == 200
        assert get(address, "/b", x_user="a").status == 429


def test_a_dead_server_lets_pass_or_denies_as_told(serve: Serve, server: FakeServer) -> None:
    server.fail()
    with serve() as (address, _):
        answer = get(address)
        assert answer.status == 200
        assert "ratelimit-limit" not in answer.headers
    with serve(on_error="closed") as (address, _):
        answer = get(address)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")


def test_a_body_of_ones_own(serve: Serve) -> None:
    with serve(body=b"<p>later</p>", content_type="text/html") as (address, _):
        answer = [get(address) for _ in range(3)][2]
        assert (answer.body, answer.headers["content-type"]) == (b"<p>later</p>", "text/html")


def test_what_a_key_function_sees(serve: Serve, server: FakeServer) -> None:
    seen: list[HttpRequest] = []

    def key(request: HttpRequest) -> None:
        seen.append(request)

    with serve(key) as (address, _):
        http_request(
            address, "POST", "/caf%C3%A9?q=1", b"{}", {"Content-Type": "application/json", "X-Forwarded-For": "1.1.1.1"}
        )
    (request,) = seen
    assert (request.method, request.path) == ("POST", "/café")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-forwarded-for"] == "1.1.1.1"
    assert request.client is not None
    assert request.client.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"key": "user"}, "key: a function of a request, got str"),
        ({"exempt": "/healthz"}, r"exempt: a list of paths, got one that is not in a list: write \['/healthz'\]"),
        ({"on_error": "ajar"}, "on_error: one of"),
        ({"cost": "1"}, "cost: a function, got str '1'"),
        ({"cost": -1}, "cost: 0 to 4294967295, got -1"),
        ({"body": "later"}, r"body: bytes, got str; write b'…', or text.encode\(\)"),
    ],
)
def test_wrong_options_are_named(serve: Serve, options: Any, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint), serve(**options):
        raise AssertionError("not reached")


def test_a_client_of_the_other_kind_is_refused(server: FakeServer) -> None:
    with pytest.raises(TypeError, match=r"limiter: ASGI needs a headgate_client.AsyncHeadgate, got FakeHeadgate"):
        asgi.RateLimitMiddleware(asgi_app, server.client("edge"), by_user)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"limiter: WSGI needs a headgate_client.Headgate, got FakeAsyncHeadgate"):
        wsgi.RateLimitMiddleware(wsgi_app, server.async_client("edge"), by_user)  # type: ignore[arg-type]


async def test_websockets_are_denied_at_the_handshake(server: FakeServer) -> None:
    middleware = asgi.RateLimitMiddleware(asgi_app, server.async_client("edge"), by_user, exempt=["/free"])
    server.limit("edge", "0/minute", user="alice")
    scope: dict[str, Any] = {"type": "websocket", "path": "/ws", "headers": [(b"x-user", b"alice")], "client": None}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a denial reads nothing")

    await middleware(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1013}]
    sent.clear()
    await middleware({**scope, "extensions": {"websocket.http.response": {}}}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.http.response.start", "websocket.http.response.body"]
    assert sent[0]["status"] == 429
    sent.clear()
    await middleware({**scope, "path": "/free"}, receive, send)
    await middleware({"type": "lifespan"}, receive, send)
    assert [message.get("status") for message in sent] == [200, None], "what passes is the application's"


class Plan(enum.Enum):
    GOLD = "gold"


@pytest.mark.parametrize("value", [42, uuid.UUID(int=1), Plan.GOLD, b"caf\xc3\xa9", 1.5])
def test_values_that_are_no_text_become_text(serve: Serve, server: FakeServer, value: Any) -> None:
    with serve(lambda _: {"user": value}) as (address, _):
        assert [get(address).status for _ in range(3)] == [200, 200, 429]
    (entry,) = server.requests[0].descriptors[0].entries
    assert (entry.key, entry.value) == ("user", text_of(value))


def text_of(value: Any) -> str:
    return {Plan.GOLD: "gold", b"caf\xc3\xa9": "café"}.get(value) or str(value)


def no_user(request: HttpRequest) -> dict[str, str]:
    raise KeyError("x-user")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (no_user, "no_user: KeyError: 'x-user'"),
        (lambda _: {"user": None}, "user: None is no value; a key function returns None to exempt a request"),
        (lambda _: "alice", "descriptors: a list of mappings, got str 'alice'"),
        (lambda _: [], "descriptors: the list is empty"),
        (lambda _: {"user": b"\xff"}, "UnicodeDecodeError"),
    ],
)
def test_a_key_function_that_fails_fails_by_on_error_and_is_logged_once(
    serve: Serve, server: FakeServer, caplog: pytest.LogCaptureFixture, key: Any, reason: str
) -> None:
    """A limiter must not take down what it protects."""
    with serve(key) as (address, _):
        assert [get(address).status for _ in range(4)] == [200] * 4
    with serve(key, on_error="closed") as (address, _):
        assert get(address).status == 429
    traced = [record for record in caplog.records if record.exc_info]
    assert len(traced) == 2, "one for each middleware"
    assert reason in "".join(record.getMessage() for record in caplog.records if "gave no decision" in record.message)
    assert server.requests == []


def test_a_cost_function_that_fails_does_the_same(serve: Serve) -> None:
    for cost in (lambda _: 1 / 0, lambda _: "3", lambda _: -1):
        with serve(cost=cost) as (address, _):
            assert get(address).status == 200
        with serve(cost=cost, on_error="closed") as (address, _):
            assert get(address).status == 429


def test_a_key_function_of_asyncio_is_awaited_where_there_is_a_loop(server: FakeServer) -> None:
    async def key(request: HttpRequest) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"user": request.headers["x-user"]}

    async def cost(request: HttpRequest) -> int:
        await asyncio.sleep(0)
        return 2

    over = asgi.RateLimitMiddleware(asgi_app, server.async_client("edge"), key, cost=cost)
    with serve_asgi(over, lifespan="off") as address:
        assert [get(address, x_user="alice").status for _ in range(2)] == [200, 429]
    with pytest.raises(TypeError, match=r"^key: .*key is a coroutine function, and WSGI has no loop to await it"):
        wsgi.RateLimitMiddleware(wsgi_app, server.client("edge"), key)
    with pytest.raises(TypeError, match=r"^cost: .*cost is a coroutine function"):
        wsgi.RateLimitMiddleware(wsgi_app, server.client("edge"), by_user, cost=cost)

    def hidden(request: HttpRequest) -> Any:
        return key(request)

    over_hidden = wsgi.RateLimitMiddleware(wsgi_app, server.client("edge"), hidden, on_error="closed")
    with serve_wsgi(over_hidden) as address:
        assert get(address, x_user="bob").status == 429, "a coroutine that nobody awaits is no key"
