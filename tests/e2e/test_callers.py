"""Who may ask a real server, over gRPC and HTTP, with one process and with several."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from headgate_client import AsyncClient, Client, RateLimitError, Tls

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import Answer, Headgate, http_request, run, serve, start, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until
from tests.support.workers import serve_workers

REQUEST = {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}
ALICE = [{"user": "alice"}]
BEARER = {"Authorization": "Bearer one"}
INSIGHT = ("/metrics", "/rules", "/version")
HEALTH = ("/healthz", "/readyz")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("one\n")
    return path


@contextlib.contextmanager
def served(rules: Path, *flags: str, workers: int, **addresses: Any) -> Iterator[Headgate]:
    """One process by itself, or several that meet at a Redis."""
    if workers == 1:
        with serve(rules, *flags, **addresses) as headgate:
            yield headgate
        return
    with RedisServer() as redis, serve_workers(rules, redis.url, workers, *flags, **addresses) as headgate:
        yield headgate


def get(address: str, path: str, headers: dict[str, str] | None = None) -> Answer:
    return http_request(address, "GET", path, headers=headers)


def post(address: str, headers: dict[str, str] | None = None) -> Answer:
    said = {"Content-Type": "application/json", **(headers or {})}
    return http_request(address, "POST", "/json", json.dumps(REQUEST).encode(), said)


def test_a_token_is_demanded_on_grpc_and_on_http_alike(rules: Path, tokens: Path) -> None:
    with serve(rules, "--token-file", str(tokens)) as headgate:
        with Client(headgate.grpc, token="one", timeout_s=5) as known, Client(headgate.grpc, timeout_s=5) as stranger:  # noqa: S106
            assert known.should_rate_limit("edge", ALICE).admitted
            with pytest.raises(RateLimitError, match=r"UNAUTHENTICATED.*bearer token"):
                stranger.should_rate_limit("edge", ALICE)
        for answer in (
            post(headgate.http),
            post(headgate.http, {"Authorization": "Bearer two"}),
            headgate.get("/rules"),
        ):
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "bearer token" in answer.json()["error"]
        assert post(headgate.http, BEARER).status == 200
        assert get(headgate.http, "/rules", BEARER).status == 200
        for path in (*HEALTH, "/metrics", "/version"):
            assert headgate.get(path).status == 200, path
        metrics = headgate.get("/metrics").body.decode()
        assert _total(metrics, "headgate_grpc_refused_total{", 'reason="unauthenticated"') == 1
        assert _total(metrics, "headgate_tokens ", "") == 1
        assert "\nheadgate_token_reload_failures_total 0.0\n" in metrics

        tokens.write_text("# rotated\nthe-next-one\none\n")
        next_bearer = {"Authorization": "Bearer the-next-one"}
        wait_until(lambda: post(headgate.http, next_bearer).status == 200, "the new token", timeout_s=30)
        assert post(headgate.http, BEARER).status == 200
        tokens.write_text("the-next-one\n")
        wait_until(lambda: post(headgate.http, BEARER).status == 401, "the old token's end", timeout_s=30)
        wait_until(lambda: _refuses(headgate.grpc, "one"), "the old token's end on gRPC", timeout_s=30)


def _refuses(address: str, token: str) -> bool:
    try:
        with Client(address, token=token, timeout_s=5) as client:
            client.should_rate_limit("edge", [{"bulk": "x"}])
    except RateLimitError as error:
        return error.status == "UNAUTHENTICATED"
    return False


def _both_families(address: str) -> list[str]:
    port = address.rpartition(":")[2]
    return [f"127.0.0.1:{port}", f"[::1]:{port}"]


def _total(metrics: str, name: str, label: str) -> float:
    lines = [line for line in metrics.splitlines() if line.startswith(name) and label in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.parametrize("workers", [1, 2])
def test_who_looks_can_not_spend_and_who_spends_can_not_look(rules: Path, tokens: Path, workers: int) -> None:
    flags = ("--admin", "[::]:0", "--token-file", str(tokens))
    with served(rules, *flags, workers=workers, grpc="[::]:0", http="[::]:0") as headgate:
        admin = headgate.wait_for_event("serving")["admin"]
        for path in HEALTH:
            for address in _both_families(headgate.http) + _both_families(admin):
                assert get(address, path).status == 200, (address, path)
        for address in _both_families(headgate.grpc):
            with Client(address, token="one", timeout_s=10) as client:  # noqa: S106
                assert client.should_rate_limit("edge", ALICE).admitted
        for path in INSIGHT:
            assert get(admin, path).status == 200, path
            assert get(headgate.http, path, BEARER).status == 404, path
        assert "admin" in get(headgate.http, "/metrics").json()["error"]
        assert post(admin, BEARER).status == 404
        assert get(admin, "/json").status == 404
        assert post(headgate.http, BEARER).status == 200
        assert post(headgate.http).status == 401
        # What an operator sees of readiness, a caller does not.
        assert headgate.get("/readyz").json() == {"ready": True, "state": "serving"}
        assert get(admin, "/readyz").json().keys() > {"ready", "state"}
        name = "headgate_http_requests_total{" if workers == 1 else "headgate_supervisor_http_requests_total{"
        wanted = [(name, 'route="/json",status="401"'), (name, 'route="/rules",status="200"')]

        def counted() -> list[float]:
            shown = get(admin, "/metrics").body.decode()
            return [_total(shown, *each) for each in wanted]

        wait_until(lambda: counted() == [1, 1], "the counts, which are rendered once a second")
        tokens.write_text("two\n")
        rotated = {"Authorization": "Bearer two"}
        wait_until(lambda: post(headgate.http, rotated).status == 200, "the new token", timeout_s=30)


@pytest.fixture
def mutual(tmp_path: Path) -> list[str]:
    ca = authority("ca")
    (tmp_path / "ca.crt").write_bytes(ca.cert_pem)
    cert, key = issued_by(ca, "server").write(tmp_path, "server")
    issued_by(ca, "edge", "edge.example").write(tmp_path, "edge")
    issued_by(ca, "other", "other.example").write(tmp_path, "other")
    return ["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", str(tmp_path / "ca.crt")]


def shown(directory: Path, name: str) -> Tls:
    return Tls(directory / "ca.crt", directory / f"{name}.crt", directory / f"{name}.key", "localhost")


def test_a_certificate_needs_an_allowed_name_and_http_has_none_to_show(
    rules: Path, mutual: list[str], tmp_path: Path
) -> None:
    with serve(rules, *mutual, "--tls-client-san", "edge.example", "--tls-client-san", "spiffe://c/*") as headgate:
        with Client(headgate.grpc, tls=shown(tmp_path, "edge"), timeout_s=5) as client:
            assert client.should_rate_limit("edge", ALICE).admitted
        with (
            Client(headgate.grpc, tls=shown(tmp_path, "other"), timeout_s=5) as client,
            pytest.raises(RateLimitError, match="UNAVAILABLE"),
        ):
            client.should_rate_limit("edge", ALICE)
        assert _health(headgate.grpc, shown(tmp_path, "edge")) == health_pb2.HealthCheckResponse.SERVING
        for answer in (headgate.post_json(REQUEST), headgate.get("/rules")):
            assert answer.status == 403
            assert "certificate" in answer.json()["error"]
            assert "token_file" in answer.json()["error"]
        assert headgate.get("/metrics").status == headgate.get("/readyz").status == 200
        trusted = ["--tls-ca", str(tmp_path / "ca.crt"), "--tls-server-name", "localhost"]
        asked = run("check", "--addr", headgate.grpc, "--timeout", "10", "--domain", "edge", *trusted, "user=alice")
        assert asked.returncode == 2
        assert "it may want a client certificate: --tls-cert FILE --tls-key FILE" in asked.stderr


def _health(address: str, tls: Tls) -> int:
    ca, key, cert = (Path(str(file)).read_bytes() for file in (tls.ca, tls.key, tls.cert))
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    options = [("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(address, credentials, options) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return int(check(health_pb2.HealthCheckRequest(), timeout=10).status)


async def test_every_client_can_send_a_token(rules: Path, tokens: Path) -> None:
    with serve(rules, "--token-file", str(tokens)) as headgate:
        async with AsyncClient(headgate.grpc, token="one", timeout_s=5) as client:  # noqa: S106
            assert (await client.should_rate_limit("edge", ALICE)).admitted
        asked = ["check", "--addr", headgate.grpc, "--timeout", "10", "--domain", "edge", "user=alice"]
        assert run(*asked).returncode == 2
        assert run(*asked, "--token-file", str(tokens)).returncode == 0


EXCHANGER = ("exchange", "--origin", "redis://127.0.0.1:1", "--peer", "eu=127.0.0.1:1", "--exchange", "127.0.0.1:0")


def test_an_exchanger_alone_is_guarded_as_a_node_is(rules: Path, tokens: Path) -> None:
    with start(*EXCHANGER, "--rules", str(rules), "--http", "127.0.0.1:0", "--token-file", str(tokens)) as exchanger:
        address = exchanger.wait_for_event("exchanging")["http"]
        assert get(address, "/regions").status == 401
        assert get(address, "/regions", BEARER).json()["exchanging"] is True
        assert [get(address, path).status for path in (*HEALTH, "/metrics", "/version")] == [200] * 4


def test_an_exchanger_has_a_listener_for_operators_too(rules: Path) -> None:
    with start(*EXCHANGER, "--rules", str(rules), "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0") as exchanger:
        told = exchanger.wait_for_event("exchanging")
        paths = ("/regions", "/metrics", "/healthz")
        assert [get(told["http"], path).status for path in paths] == [404, 404, 200]
        assert [get(told["admin"], path).status for path in paths] == [200, 200, 200]
