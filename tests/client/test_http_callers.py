"""httpx and requests that wait as a 429 tells them, over sockets."""

import datetime
import email.utils
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest
import requests
from headgate_client.middleware.httpx import AsyncRetryAfterTransport, RetryAfterTransport
from headgate_client.middleware.obeying import Obey, parse_retry_after
from headgate_client.middleware.requests import RetryAfterAdapter
from headgate_client.testing import FakeClock

from tests.client.serving import serve_wsgi


class Denying:
    """Denies some times, then says what it was sent."""

    def __init__(self, denials: int, retry_after: str | None = "5") -> None:
        self.denials = denials
        self.retry_after = retry_after
        self.seen: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.seen.append(body)
        if len(self.seen) <= self.denials:
            headers = [("Retry-After", self.retry_after)] if self.retry_after is not None else []
            start_response("429 Too Many Requests", [*headers, ("Content-Length", "5")])
            return [b"later"]
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"got ", body]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["httpx", "httpx asyncio", "requests"])
def post(request: pytest.FixtureRequest, clock: FakeClock) -> Any:
    def post(address: str, body: Any = b"hello", **options: Any) -> tuple[int, str]:
        obey, url = Obey(clock=clock, **options), f"http://{address}/"
        if request.param == "requests":
            with requests.Session() as session:
                session.mount("http://", RetryAfterAdapter(obey=obey))
                answer = session.post(url, data=body, timeout=60)
            return answer.status_code, answer.text
        if request.param == "httpx":
            with httpx.Client(transport=RetryAfterTransport(obey=obey), timeout=60) as client:
                response = client.post(url, content=body)
            return response.status_code, response.text
        import asyncio

        async def post_async() -> httpx.Response:
            async with httpx.AsyncClient(transport=AsyncRetryAfterTransport(obey=obey), timeout=60) as client:
                return await client.post(url, content=body)

        response = asyncio.run(post_async())
        return response.status_code, response.text

    return post


def test_it_waits_and_the_body_is_sent_again(post: Any, clock: FakeClock) -> None:
    app = Denying(2)
    began_s = clock.now_s()
    with serve_wsgi(app) as address:
        assert post(address) == (200, "got hello")
    assert app.seen == [b"hello"] * 3
    assert 10 <= clock.now_s() - began_s <= 10.3, "twice what it was told, and jitter"


def test_enough_is_enough(post: Any, clock: FakeClock) -> None:
    app = Denying(9)
    began_s = clock.now_s()
    with serve_wsgi(app) as address:
        assert post(address, attempts=4) == (429, "later")
    assert len(app.seen) == 4
    assert 15 <= clock.now_s() - began_s < 16


def test_a_wait_that_is_too_long_is_not_begun(post: Any, clock: FakeClock) -> None:
    app = Denying(1, retry_after="31")
    began_s = clock.now_s()
    with serve_wsgi(app) as address:
        assert post(address) == (429, "later")
    assert (len(app.seen), clock.now_s()) == (1, began_s)


def test_without_a_time_there_is_jitter_alone(post: Any, clock: FakeClock) -> None:
    app = Denying(2, retry_after=None)
    began_s = clock.now_s()
    with serve_wsgi(app) as address:
        assert post(address) == (200, "got hello")
    assert 0 < clock.now_s() - began_s <= 0.3


def test_a_body_that_can_be_read_once_is_not_sent_twice(clock: FakeClock) -> None:
    def body() -> Iterator[bytes]:
        yield b"once"

    transport = RetryAfterTransport(obey=Obey(clock=clock))
    with serve_wsgi(Denying(1)) as address, httpx.Client(transport=transport, timeout=60) as client:
        assert client.post(f"http://{address}/", content=body(), headers={"content-length": "4"}).status_code == 429


def test_times_as_servers_write_them() -> None:
    assert parse_retry_after("120") == 120
    assert parse_retry_after("1.5") == 1.5
    soon = datetime.datetime.fromtimestamp(time.time() + 3600, datetime.UTC)
    in_an_hour = parse_retry_after(email.utils.format_datetime(soon, usegmt=True))
    assert in_an_hour is not None
    assert 0 < in_an_hour <= 3600
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    for nothing in (None, "", "soon", "nan", "inf"):
        assert parse_retry_after(nothing) is None
    assert parse_retry_after("-5") == 0


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="attempts: 1 or more, got 0"):
        Obey(attempts=0)
    with pytest.raises(ValueError, match="max_wait: seconds, 0 or more, got -1"):
        Obey(max_wait=-1)
