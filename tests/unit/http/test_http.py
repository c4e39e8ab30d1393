"""HTTP over real sockets: every route, every error, every bound."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from headgate.errors import BadRequest, ConfigError, NotReady
from headgate.pending import PendingAnswer
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.exposition import Format
from headgate.transport import http_listener
from headgate.transport.http import HttpServer, HttpSources
from headgate.transport.http_listener import PIECE_BYTES, HttpEndpoint, HttpLimits
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from multidict import CIMultiDictProxy

from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S, until

OK_ANSWER = RateLimitResponse(
    overall_code=RateLimitResponse.OK,
    statuses=[
        RateLimitResponse.DescriptorStatus(
            code=RateLimitResponse.OK,
            current_limit=RateLimitResponse.RateLimit(requests_per_unit=5, unit=RateLimitResponse.RateLimit.HOUR),
        )
    ],
)
DENIAL = RateLimitResponse(overall_code=RateLimitResponse.OVER_LIMIT)
DENIAL.response_headers_to_add.add(key="Retry-After", value="7")
REQUEST = {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}], "hitsAddend": 2}

Served = Callable[..., AbstractAsyncContextManager["Service"]]


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def error(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


Answer = Callable[[bytes], bytes | PendingAnswer]


class Service:
    """A server with everything behind it made up."""

    def __init__(self, answer: Answer, address: str = "127.0.0.1:0", **limits: Any) -> None:
        async def scraped(_: Format) -> bytes:
            self.scraped += 1
            return self.metrics

        self.accepts = True
        self.metrics = b"headgate_x 1\n"
        self.scraped = 0
        self.ready = True
        self.requests: list[RateLimitRequest] = []
        self.callers: list[str] = []
        self.log = Log()
        self._answer = answer
        sources = HttpSources(
            handler=self,
            accepts=lambda: self.accepts,
            readiness=lambda: (self.ready, {"state": "made up"}),
            rules=lambda query: {"query": dict(query)},
            metrics=scraped,
            version={"version": "1.2.3"},
        )
        logger = BoundedLogger(self.log, ManualClock())
        self.server = HttpServer(HttpEndpoint(address, logger, HttpLimits(**limits)), sources)

    def answer(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        """As a handler does."""
        self.requests.append(RateLimitRequest.FromString(payload))
        self.callers.append(caller)
        return self._answer(payload)

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any, CIMultiDictProxy[str]]:
        if "data" in more:
            more["headers"] = {"Content-Type": "application/json", **more.get("headers", {})}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://{self.server.address}{path}", **more) as response,
        ):
            text = await response.text()
            body = json.loads(text) if response.content_type == "application/json" else text
            return response.status, body, response.headers


@asynccontextmanager
async def served(answer: Answer = lambda _: OK_ANSWER.SerializeToString(), **arguments: Any) -> AsyncIterator[Service]:
    service = Service(answer, **arguments)
    await service.server.start()
    try:
        yield service
    finally:
        await service.server.stop()


async def test_json_goes_through_the_same_bytes_and_comes_back() -> None:
    async with served() as service:
        status, body, headers = await service.call("POST", "/json", json=REQUEST)
        assert status == 200
        assert body == {
            "overallCode": "OK",
            "statuses": [
                {
                    "code": "OK",
                    "currentLimit": {"requestsPerUnit": 5, "unit": "HOUR", "name": ""},
                    "limitRemaining": 0,
                }
            ],
        }
        assert headers["Server"] == "headgate"
        (request,) = service.requests
        assert (request.domain, request.hits_addend) == ("edge", 2)
        assert [(e.key, e.value) for e in request.descriptors[0].entries] == [("user", "alice")]


@pytest.mark.parametrize(("address", "caller"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::/64")])
async def test_who_decides_hears_from_which_network_it_is_asked(address: str, caller: str) -> None:
    async with served(address=address) as service:
        assert (await service.call("POST", "/json", json=REQUEST))[0] == 200
        assert service.callers == [caller]


async def test_both_spellings_of_proto3_json_are_read() -> None:
    async with served() as service:
        for spelling in ("hitsAddend", "hits_addend"):
            body = {"domain": "d", spelling: 3, "descriptors": [{"entries": [{"key": "k"}], spelling: "4"}]}
            assert (await service.call("POST", "/json", json=body))[0] == 200
        one, two = service.requests
        assert one == two
        assert (one.hits_addend, one.descriptors[0].hits_addend.value) == (3, 4)


async def test_a_denial_is_429_with_its_headers() -> None:
    async with served(lambda _: DENIAL.SerializeToString()) as service:
        status, body, headers = await service.call("POST", "/json", json=REQUEST)
        assert (status, body["overallCode"]) == (429, "OVER_LIMIT")
        assert headers.getall("Retry-After") == ["7"]


async def test_a_denial_says_when_to_come_back_without_being_set_to() -> None:
    """By the longest of the denials, rounded up; an admission says nothing."""
    denial = RateLimitResponse(overall_code=RateLimitResponse.OVER_LIMIT)
    for code, reset_ms in (("OVER_LIMIT", 900), ("OVER_LIMIT", 6_001), ("OK", 90_000)):
        denial.statuses.add(code=code).duration_until_reset.FromMilliseconds(reset_ms)
    async with served(lambda _: denial.SerializeToString()) as service:
        status, _, headers = await service.call("POST", "/json", json=REQUEST)
        assert (status, headers.getall("Retry-After")) == (429, ["7"])
    async with served() as service:
        assert "Retry-After" not in (await service.call("POST", "/json", json=REQUEST))[2]


@pytest.mark.slow
async def test_an_answer_that_comes_later_is_awaited_also_where_nobody_waits_any_more() -> None:
    answers: list[PendingAnswer] = []

    def later(_: bytes) -> PendingAnswer:
        answers.append(PendingAnswer())
        return answers[-1]

    async with served(later) as service:
        call = asyncio.create_task(service.call("POST", "/json", json=REQUEST))
        await until(lambda: bool(answers), "the call")
        answers[0].on_answer(OK_ANSWER.SerializeToString())
        assert (await call)[0] == 200
    async with served(later, request_timeout_s=1) as service:
        with pytest.raises(aiohttp.ClientError):
            await service.call("POST", "/json", json=REQUEST)
        answers[1].on_answer(OK_ANSWER.SerializeToString())  # what is decided for nobody harms nobody
        assert service.server.requests["/json", 408] == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"domain": 7}',
        b'{"domein": "edge"}',
        b'{"domain": "a", "domain": "b"}',
        b'{"hitsAddend": -1}',
        b'{"hitsAddend": 4294967296}',
        b'{"domain": "\\ud800"}',
        b'{"descriptors": {"entries": []}}',
        b"[" * 8_000,
        b'{"descriptors":' * 500,
        b'{"descriptors": [' + b"{}," * 2_600 + b"{}]}",
        b'{"hitsAddend": NaN}',
        b'{"hitsAddend": ' + b"9" * 8_000 + b"}",
        b'{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}',
    ],
)
async def test_garbage_is_400_with_a_reason_in_json(body: bytes) -> None:
    async with served() as service:
        status, answer, _ = await service.call("POST", "/json", data=body)
        assert (status, list(answer)) == (400, ["error"])
        assert "the body is n" in answer["error"]
        assert service.requests == []


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (BadRequest("domain is empty"), 400, "domain is empty"),
        (NotReady("too much to do"), 503, "too much to do"),
        (RuntimeError("a secret"), 500, "internal error"),
    ],
)
async def test_errors_of_the_handler_are_mapped_and_ours_are_not_told(
    error: Exception, status: int, message: str
) -> None:
    def fail(_: bytes) -> bytes:
        raise error

    async with served(fail) as service:
        assert (await service.call("POST", "/json", json=REQUEST))[:2] == (status, {"error": message})
        assert [event for event, _ in service.log.events] == (["http_request_failed"] if status == 500 else [])


async def test_not_ready_is_503() -> None:
    async with served() as service:
        service.accepts = service.ready = False
        assert (await service.call("POST", "/json", json=REQUEST))[:2] == (503, {"error": "not ready"})
        assert (await service.call("GET", "/readyz"))[:2] == (503, {"ready": False, "state": "made up"})
        assert (await service.call("GET", "/healthz"))[0] == 200
        assert service.requests == []


async def test_what_there_is_to_see() -> None:
    async with served() as service:
        assert (await service.call("GET", "/healthz"))[:2] == (200, {"status": "ok"})
        assert (await service.call("GET", "/readyz"))[:2] == (200, {"ready": True, "state": "made up"})
        assert (await service.call("GET", "/rules?domain=edge"))[:2] == (200, {"query": {"domain": "edge"}})
        assert (await service.call("GET", "/version"))[:2] == (200, {"version": "1.2.3"})
        status, text, headers = await service.call("GET", "/metrics")
        assert (status, text, headers["Content-Type"]) == (200, "headgate_x 1\n", Format.TEXT)


async def test_unknown_routes_and_methods_are_json_errors_and_share_one_series() -> None:
    async with served() as service:
        for number in range(5):
            assert (await service.call("GET", f"/{number}"))[:2] == (404, {"error": "Not Found"})
        status, body, headers = await service.call("GET", "/json")
        assert (status, body, headers["Allow"]) == (405, {"error": "Method Not Allowed"}, "POST")
        assert dict(service.server.requests) == {("other", 404): 5, ("/json", 405): 1}


async def test_a_body_over_the_bound_is_413_announced_or_not() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    async with served(max_body_bytes=1000) as service:
        exact = json.dumps(REQUEST).encode().ljust(1000)
        assert (await service.call("POST", "/json", data=exact))[0] == 200
        too_large = {"error": "the body may have 1000 bytes"}
        assert (await service.call("POST", "/json", data=exact + b" "))[:2] == (413, too_large)
        assert (await service.call("POST", "/json", data=chunks()))[:2] == (413, too_large)
        assert len(service.requests) == 1


async def test_a_compressed_body_is_refused_before_it_can_grow() -> None:
    async with served() as service:
        status, body, _ = await service.call("POST", "/json", data=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
        assert (status, body) == (415, {"error": "the body must not be compressed"})


async def _raw(service: Service, data: bytes) -> bytes:
    host, _, port = service.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_headers_over_the_bound_are_refused() -> None:
    async with served(max_header_bytes=1000, max_headers=10) as service:
        long_line = b"GET /healthz?" + b"x" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        long_field = b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 2000 + b"\r\n\r\n"
        many = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: x\r\n" % n for n in range(20)) + b"\r\n"
        for request in (long_line, long_field, many):
            assert (await _raw(service, request)).startswith(b"HTTP/1.0 4") or (
                await _raw(service, request)
            ).startswith(b"HTTP/1.1 4")
        good = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await _raw(service, good)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("data", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"G"])
async def test_a_client_that_sends_no_request_is_cut(data: bytes) -> None:
    async with served(idle_timeout_s=0.2) as service:
        assert await _raw(service, data) == b""


@pytest.mark.slow
async def test_a_client_that_sends_its_body_slowly_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with served(request_timeout_s=1) as service:
        head = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        assert await _raw(service, head) == b""
        assert service.server.requests == {("/json", 408): 1}
        assert service.log.events == []
        assert caplog.records == []
        assert (await service.call("GET", "/healthz"))[0] == 200


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    def endless(_: bytes) -> bytes:
        answer = RateLimitResponse(overall_code=RateLimitResponse.OK)
        for _index in range(2_000):
            answer.statuses.add(code=RateLimitResponse.OK).current_limit.name = "x" * 5_000
        return answer.SerializeToString()

    async with served(endless, request_timeout_s=2) as service:
        host, _, port = service.server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        body = json.dumps(REQUEST).encode()
        head = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await until(lambda: bool(service.server.requests), "the cut")
        assert service.server.requests == {("/json", 408): 1}
        writer.transport.abort()
        await writer.wait_closed()
        assert caplog.records == []
        del reader


# Pages of other sites


@pytest.mark.parametrize("said", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_does_not_say_that_it_is_json_is_refused(said: str) -> None:
    """A page of another site can send these to any address that its visitor reaches, without asking first."""
    async with served() as service:
        body = json.dumps(REQUEST).encode()
        status, answer, _ = await service.call("POST", "/json", data=body, headers={"Content-Type": said})
        assert (status, service.requests) == (415, [])
        assert "application/json" in answer["error"]


@pytest.mark.parametrize("path", ["/rules", "/regions", "/top", "/trend", "/decisions", "/explain"])
async def test_pages_of_other_sites_are_refused_what_is_not_everybodys(path: str) -> None:
    async with served() as service:
        assert (await service.call("GET", path, headers={"Sec-Fetch-Site": "cross-site"}))[0] == 403
        assert (await service.call("GET", path, headers={"Host": "evil.example:8080"}))[0] == 403
        for site in ("same-origin", "none"):
            assert (await service.call("GET", path, headers={"Sec-Fetch-Site": site}))[0] != 403


async def test_pages_of_other_sites_can_neither_spend_nor_give_back() -> None:
    async with served() as service:
        asked = {"Sec-Fetch-Site": "cross-site", "Host": "evil.example"}
        for name, value in asked.items():
            assert (await service.call("POST", "/json", json=REQUEST, headers={name: value}))[0] == 403
        assert service.requests == []
        for path in ("/", "/healthz", "/readyz", "/metrics", "/version"):
            assert (await service.call("GET", path, headers=asked))[0] == 200


# Answers


async def test_metrics_are_rendered_once_a_second_whoever_asks() -> None:
    async with served(scrape_kept_s=60) as service:
        await asyncio.gather(*(service.call("GET", "/metrics") for _ in range(10)))
        assert service.scraped == 1
        openmetrics = {"Accept": "application/openmetrics-text"}
        assert (await service.call("GET", "/metrics", headers=openmetrics))[2]["Content-Type"] == Format.OPENMETRICS
        assert service.scraped == 2
    async with served(scrape_kept_s=0) as service:
        for _ in range(3):
            await service.call("GET", "/metrics")
        assert service.scraped == 3


async def test_of_answers_that_nobody_reads_a_piece_is_held() -> None:
    """Of thirty requests in one go: one is answered, as far as its caller reads."""
    async with served(scrape_kept_s=60, request_timeout_s=60) as service:
        service.metrics = b"#" * 20_000_000
        host, _, port = service.server.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 30)
        await until(lambda: service.scraped == 1, "the request")
        (protocol,) = service.server.connections._by_protocol
        assert protocol.transport is not None
        for _ in range(50):
            await asyncio.sleep(0.002)
            assert protocol.transport.get_write_buffer_size() <= 3 * PIECE_BYTES
        writer.transport.abort()
        await until(lambda: not service.server.connections._by_protocol, "its end")
        assert service.server.requests["/metrics", 200] == 0


async def test_a_large_answer_arrives_whole() -> None:
    async with served() as service:
        service.metrics = b"0123456789" * 100_000
        status, text, headers = await service.call("GET", "/metrics")
        assert (status, text, headers["Content-Length"]) == (200, service.metrics.decode(), "1000000")
        assert headers["Content-Type"] == Format.TEXT
        assert (await service.call("HEAD", "/metrics"))[2]["Content-Length"] == "1000000"


async def test_a_request_ends_when_its_caller_leaves() -> None:
    ended: list[bool] = []

    def later(_: bytes) -> PendingAnswer:
        return PendingAnswer()

    async with served(later) as service:
        call = asyncio.create_task(service.call("POST", "/json", json=REQUEST))
        await until(lambda: bool(service.requests), "the call")
        (protocol,) = service.server.connections._by_protocol
        task = protocol._task_handler
        assert task is not None
        task.add_done_callback(lambda _: ended.append(True))
        call.cancel()
        await until(lambda: bool(ended), "its end")


async def test_a_caller_who_does_not_wait_for_the_answer_makes_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had a traceback there: anybody could fill it."""

    async def left(*_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(http_listener, "_send", left)
    async with served() as service:
        await service.call("GET", "/version")
        assert service.server.requests == {("/version", 499): 1}
        assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []
        assert service.log.events == []


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02secret\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n"],
)
async def test_what_is_no_http_is_answered_without_naming_anything(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as service:
        answer = (await _raw(service, garbage)).lower()
        assert b"400 bad request" in answer
        assert b'{"error": "not http' in answer
        for word in (b"python", b"aiohttp", b"secret"):
            assert word not in answer
        assert b"server: headgate" in answer
        assert caplog.records == []


async def test_a_unix_socket_serves_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "http"
    async with (
        served(address=f"unix:{path}") as service,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
    ):
        async with session.get("http://x/healthz") as response:
            assert response.status == 200
        with pytest.raises(ConfigError, match="in use by another process"):
            await Service(lambda _: b"", f"unix:{path}").server.start()
        assert service.server.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == []


async def test_a_unix_socket_that_can_t_be_made_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"unix:{tmp_path}/missing/s: can't create"):
        await Service(lambda _: b"", f"unix:{tmp_path}/missing/s").server.start()


async def test_a_port_in_use_is_a_config_error() -> None:
    async with served() as service:
        with pytest.raises(ConfigError, match=rf"can't listen on {service.server.address}: address already in use"):
            await Service(lambda _: b"", service.server.address).server.start()


async def test_a_host_that_does_not_exist_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"can't listen on nowhere\.invalid:0: "):
        await Service(lambda _: b"", "nowhere.invalid:0").server.start()


async def test_stopping_finishes_what_is_under_way() -> None:
    answer = PendingAnswer()
    async with served(lambda _: answer) as service:
        call = asyncio.create_task(service.call("POST", "/json", json=REQUEST))
        await until(lambda: bool(service.requests), "the call")
        stopping = asyncio.create_task(service.server.stop())
        await asyncio.sleep(0)
        answer.on_answer(OK_ANSWER.SerializeToString())
        assert (await call)[0] == 200
        await stopping
