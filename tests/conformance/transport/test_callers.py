"""Callers who must show something: a token on both transports, a name in a certificate where there is TLS."""

import time
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from headgate.endpoint.tls import TlsFiles
from headgate.endpoint.tokens import TokenFile
from headgate.transport import health
from headgate.transport.callers import Callers, SanList
from headgate.transport.interface import RATE_LIMIT_METHOD
from headgate.transport.reflection import V1_SERVICE

from tests.conformance.transport.certificates import authority, issued_by
from tests.conformance.transport.harness import TIMEOUT_S, Kind, Server, dialled, eventually, serving, status_of_call
from tests.conformance.transport.raw import call_headers, message, raw_client

CA = authority("ca")
Metadata = tuple[tuple[str, str], ...]


def token_file(path: Path, *tokens: str) -> TokenFile:
    path.write_text("\n".join(tokens))
    return TokenFile(str(path), structlog.get_logger())


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def ask(channel: grpc.aio.Channel, metadata: Metadata = (), timeout_s: float = TIMEOUT_S) -> Any:
    caller: Any = channel.unary_unary(RATE_LIMIT_METHOD)
    return caller(b"x", timeout=timeout_s, metadata=metadata)


async def check_health(channel: grpc.aio.Channel) -> int:
    caller: Any = channel.unary_unary(health.CHECK_METHOD)
    answer = await caller(b"", timeout=TIMEOUT_S)
    return health_pb2.HealthCheckResponse.FromString(answer).status


def reflect(channel: grpc.aio.Channel, metadata: Metadata = ()) -> Any:
    # One question, sent with the headers: of a stream that is refused before its first message is sent, grpc.aio says
    # INTERNAL now and then, whatever the server said.
    method: Any = channel.unary_stream(f"/{V1_SERVICE}/ServerReflectionInfo")
    request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    return method(request, timeout=TIMEOUT_S, metadata=metadata)


async def first(stream: Any) -> Any:
    async for answer in stream:
        return answer
    return None


async def test_calls_need_a_token_and_health_checks_do_not(kind: Kind, tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "t", "one", "two")
    async with serving(kind, callers=Callers(tokens)) as server, dialled(server.address) as channel:
        assert await ask(channel, bearer("one")) == b"echo:x"
        assert await ask(channel, bearer("two")) == b"echo:x"
        for metadata in ((), bearer("three"), (("authorization", "Basic one"),), (("token", "one"),)):
            code, message = await status_of_call(ask(channel, metadata))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "bearer token" in str(message)
        assert await check_health(channel) == health_pb2.HealthCheckResponse.SERVING
        assert server.script.payloads == [b"x", b"x"], "a refused call reached the handler"
        assert (server.transport.stats.calls, server.transport.stats.refused_unauthenticated) == (6, 4)
        await eventually(lambda: server.transport.stats.pending_calls == 0)


async def test_reflection_is_guarded_as_calls_are(kind: Kind, tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "t", "one")
    async with serving(kind, callers=Callers(tokens)) as server, dialled(server.address) as channel:
        assert b"RateLimitService" in await first(reflect(channel, bearer("one")))
        assert (await status_of_call(first(reflect(channel))))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await status_of_call(first(reflect(channel, bearer("x")))))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_tokens_are_rotated_on_an_open_connection(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "t"
    tokens = token_file(path, "old")
    async with serving(kind, callers=Callers(tokens)) as server, dialled(server.address) as channel:
        assert await ask(channel, bearer("old")) == b"echo:x"
        path.write_text("the-new-one\n")
        tokens.refresh()
        assert await ask(channel, bearer("the-new-one")) == b"echo:x"
        assert (await status_of_call(ask(channel, bearer("old"))))[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("kind", ["native", "grpcio"])  # the guard passes a call on when the loop has time for it
async def test_with_tokens_a_call_whose_time_is_over_is_still_dropped(kind: Kind, tmp_path: Path) -> None:
    """The token comes in another header than the time, and both are looked at."""
    tokens = token_file(tmp_path / "t", "one")
    async with serving(kind, callers=Callers(tokens)) as server, raw_client(server.port) as client:

        def headers(grpc_timeout: str) -> Any:
            return [*call_headers(grpc_timeout=grpc_timeout), ("authorization", "Bearer one")]

        warm = await client.open(headers("30S"), message(b"warm"))
        assert (await client.outcome(warm))["grpc-status"] == "0"
        await client.open(headers("100m"), message(b"late"))
        time.sleep(0.5)  # noqa: ASYNC251 - a loop that is busy, and holds its lock
        patient = await client.open(headers("30S"), message(b"patient"))
        assert (await client.outcome(patient))["grpc-status"] == "0"
    assert server.script.payloads == [b"warm", b"patient"]


@pytest.fixture
def mutual(tmp_path: Path) -> TlsFiles:
    client_ca = tmp_path / "clients.crt"
    client_ca.write_bytes(CA.cert_pem)
    return TlsFiles(*issued_by(CA, "server").write(tmp_path, "server"), str(client_ca))


def secure(server: Server, *names: str) -> grpc.aio.Channel:
    client = issued_by(CA, "client", *names)
    credentials = grpc.ssl_channel_credentials(CA.cert_pem, client.key_pem, client.cert_pem)
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"localhost:{server.port}", credentials, options)


async def test_certificates_need_a_name_that_is_allowed(mutual: TlsFiles) -> None:
    callers = Callers(names=SanList(["edge.example", "spiffe://c/ns/*"]))
    async with serving("grpcio", tls=mutual, callers=callers) as server:
        for names in (["edge.example"], ["other.example", "spiffe://c/ns/envoy"]):
            async with secure(server, *names) as channel:
                assert await ask(channel) == b"echo:x"
        async with secure(server, "other.example", "spiffe://d/ns/envoy") as channel:
            code, message = await status_of_call(ask(channel))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "SAN" in str(message)
            assert (await status_of_call(first(reflect(channel))))[0] is grpc.StatusCode.PERMISSION_DENIED
            assert await check_health(channel) == health_pb2.HealthCheckResponse.SERVING
        assert server.transport.stats.refused_forbidden == 1


async def test_the_guard_closes_the_connection_of_a_certificate_without_an_allowed_name(mutual: TlsFiles) -> None:
    callers = Callers(names=SanList(["edge.example"]))
    async with serving("guarded", tls=mutual, callers=callers) as server:
        async with secure(server, "edge.example") as channel:
            assert await ask(channel) == b"echo:x"
            assert await first(reflect(channel))
        async with secure(server, "other.example") as channel:
            assert (await status_of_call(ask(channel)))[0] is grpc.StatusCode.UNAVAILABLE
        assert server.transport.stats.guard.closed["forbidden"] >= 1
        assert server.script.payloads == [b"x"]


@pytest.mark.parametrize("kind", ["grpcio", "guarded"])
async def test_where_both_are_demanded_both_are_needed(kind: Kind, mutual: TlsFiles, tmp_path: Path) -> None:
    callers = Callers(token_file(tmp_path / "t", "one"), SanList(["edge.example"]))
    async with serving(kind, tls=mutual, callers=callers) as server:
        async with secure(server, "edge.example") as channel:
            assert await ask(channel, bearer("one")) == b"echo:x"
            assert (await status_of_call(ask(channel)))[0] is grpc.StatusCode.UNAUTHENTICATED
        refused = grpc.StatusCode.PERMISSION_DENIED if kind == "grpcio" else grpc.StatusCode.UNAVAILABLE
        async with secure(server, "other.example") as channel:
            assert (await status_of_call(ask(channel, bearer("one"))))[0] is refused
