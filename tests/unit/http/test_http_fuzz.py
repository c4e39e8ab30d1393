"""Bytes of any kind on an HTTP listener: each is answered as HTTP or not at all, and others are served."""

import asyncio
import itertools
import re
from contextlib import suppress

import pytest
from hypothesis import strategies as st

from tests.support.properties import check, examples_of
from tests.support.waiting import PATIENCE_S
from tests.unit.http.test_http import Service, served

METHODS = st.sampled_from([b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"PRI", b"get", b"G\0T"])
PATHS = [
    b"/",
    b"/json",
    b"/metrics",
    b"/healthz",
    b"/rules?limit=x",
    b"/explain?entries=%ff",
    b"*",
    b"http://x/json",
    b"/%00",
]
VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"", b"RTSP/1.0"])
HEADERS = st.sampled_from(
    [
        b"Host: x",
        b"Host: evil.example",
        b"Content-Type: application/json",
        b"Content-Length: 2",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 0x10",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked, gzip",
        b"Content-Encoding: gzip",
        b"Expect: 100-continue",
        b"Connection: upgrade",
        b"Upgrade: websocket",
        b"Connection: close",
        b"Authorization: Bearer \xff",
        b"Sec-Fetch-Site: cross-site",
        b" folded",
        b"no colon",
        b": empty",
        b"A" * 9_000,
    ]
)
BODIES = st.sampled_from(
    [b"", b"{}", b"2\r\n{}\r\n0\r\n\r\n", b"zz\r\n", b"ffffffffffffffff\r\n", b"-1\r\n"]
) | st.binary(max_size=60)
REQUESTS = st.builds(
    lambda method, path, version, headers, body: b"\r\n".join(
        [b" ".join([method, path, version]), *headers, b"", body]
    ),
    METHODS,
    st.sampled_from(PATHS) | st.binary(max_size=20),
    VERSIONS,
    st.lists(HEADERS, max_size=6),
    BODIES,
)


def whole(method: bytes, path: bytes, headers: list[bytes], body: bytes) -> bytes:
    """A request that is HTTP, whatever it asks for."""
    head = [b" ".join([method, path, b"HTTP/1.1"]), b"Host: x", *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*head, b"", body])


JSON = st.sampled_from(
    [b"{}", b"[]", b'"x"', b"{", b'{"domain": 7}', b'{"descriptors": [{"entries": [{}]}]}', b'{"hitsAddend": 1e400}']
)
WHOLE = st.builds(
    whole,
    st.sampled_from([b"GET", b"POST", b"POST", b"HEAD", b"PUT", b"OPTIONS"]),
    st.sampled_from([b"/json", b"/json", *PATHS, b"/headgate.v1.Keys/Get", b"/no/such"]),
    st.lists(
        st.sampled_from(
            [
                b"Content-Type: application/json",
                b"Content-Encoding: gzip",
                b"Sec-Fetch-Site: cross-site",
                b"Authorization: Bearer \xff",
                b"X-Request-Id: \xff",
                b"Accept: application/openmetrics-text;q=x",
            ]
        ),
        max_size=3,
        unique=True,
    ),
    JSON | st.binary(max_size=60),
)
"""Of any bytes hardly one in a thousand is a request that anything looks at."""
SAID = st.lists(WHOLE, min_size=1, max_size=5) | st.lists(WHOLE | REQUESTS | st.binary(max_size=100), max_size=5)
ANSWER = re.compile(rb"HTTP/\d\.\d [1-5]\d\d ")
STATUS = re.compile(rb"HTTP/1\.[01] (\d\d\d) ")
SEEN = {b"200", b"400", b"403", b"404", b"405"}
"""Answers that have to be among all, or this would show nothing of what is behind them."""


HONEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def say(service: Service, parts: list[bytes], source: str) -> bytes:
    """Send each part by itself, and then the end; return what is answered until the listener ends it, too."""
    host, _, port = service.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    answered = b""
    with suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        with suppress(TimeoutError):
            # Who leaves before is not answered any more.
            async with asyncio.timeout(0.02):
                answered += await reader.read(65_536)
        writer.write_eof()
        answered += await asyncio.wait_for(reader.read(), 10)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answered


async def ask_honestly(service: Service, source: str) -> bytes:
    """Ask one thing, and wait for the answer however long it takes."""
    host, _, port = service.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    writer.write(HONEST)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    return answer


@examples_of(100, 3_000)
def test_bytes_of_any_kind_harm_nobody(count: int, caplog: pytest.LogCaptureFixture) -> None:
    """None is an internal error, none is logged by anybody, none names what the server is made of."""
    with asyncio.Runner() as runner:
        serving = served(idle_timeout_s=0.5, request_timeout_s=0.5)
        service, statuses = runner.run(serving.__aenter__()), set[bytes]()
        numbers = itertools.count()

        def answered(parts: list[bytes]) -> None:
            # From many addresses: one would soon have had its share of the loop, and not be heard any more.
            number = next(numbers) % 250
            answer = runner.run(say(service, parts, f"127.1.{number}.1"))
            assert not answer or ANSWER.match(answer)
            statuses.update(STATUS.findall(answer))
            assert b"500" not in statuses
            assert b"aiohttp" not in answer.lower()
            assert runner.run(ask_honestly(service, f"127.2.{number}.1")).startswith(b"HTTP/1.1 200 ")

        try:
            check(count, answered, parts=SAID)
            assert service.log.events == []
            assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []
            assert statuses >= SEEN
        finally:
            runner.run(serving.__aexit__(None, None, None))
