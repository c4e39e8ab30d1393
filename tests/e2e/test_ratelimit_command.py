"""`headgate-ratelimit`: in the place of envoyproxy/ratelimit, with its probes, its ports and its arguments ignored."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import RATELIMIT, Headgate, http_request, start, write_rules
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workers import METHOD

TRANSPORTS = ("native", "grpcio")

ROUTE = "httproute/eg/web/rule/0/match/0/*"
RULES = """\
domain: eg/web/http
descriptors:
- key: httproute/eg/web/rule/0/match/0/*
  value: httproute/eg/web/rule/0/match/0/*
  descriptors:
  - key: rule-0-match-0
    value: rule-0-match-0
    rate_limit: {unit: minute, requests_per_unit: 3}
"""
ENVIRON = {
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "HOST": "127.0.0.1",
    "PORT": "0",
    "GRPC_HOST": "127.0.0.1",
    "GRPC_PORT": "0",
    "DEBUG_PORT": "0",
    "USE_PROMETHEUS": "true",
    "PROMETHEUS_ADDR": ":0",
}


@contextlib.contextmanager
def replaced(directory: Path, **environ: str) -> Iterator[Headgate]:
    write_rules(directory / "ratelimit" / "config", RULES)
    with start(
        "--a-flag", "and", "more", environ={**ENVIRON, "RUNTIME_ROOT": str(directory), **environ}, program=RATELIMIT
    ) as headgate:
        yield headgate.wait_ready()


def test_probes_metrics_and_rules_are_where_they_were(tmp_path: Path) -> None:
    with replaced(tmp_path, HEADGATE_DRAIN_S="60") as headgate:
        assert "arguments are ignored" in headgate.lines[0]
        answer = headgate.get("/healthcheck")
        assert (answer.status, answer.body) == (200, b"OK")
        listens = headgate.wait_for_event("serving")
        port = listens["metrics"].rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            scrape = http_request(f"{host}:{port}", "GET", "/metrics")
            assert b"ratelimit_service_config_load_success" in scrape.body
        assert http_request(f"127.0.0.1:{port}", "GET", "/rules").status == 404
        shown = http_request(listens["debug"], "GET", "/rlconfig")
        assert shown.body.decode() == (
            f"eg/web/http.{ROUTE}_{ROUTE}.rule-0-match-0_rule-0-match-0: "
            "unit=MINUTE requests_per_unit=3, shadow_mode: false\n"
        )
        headgate.send(signal.SIGTERM)
        wait_until(lambda: headgate.get("/healthcheck").status == 500, "the probe to fail while draining")
        headgate.send(signal.SIGTERM)
        headgate.wait_exit()


def asked(address: str, request: RateLimitRequest, credentials: grpc.ChannelCredentials | None = None) -> int:
    """The overall code of the answer."""
    options = [("grpc.ssl_target_name_override", "localhost")]
    opened = grpc.secure_channel(address, credentials, options) if credentials else grpc.insecure_channel(address)
    with opened as channel:
        check = channel.unary_unary(
            METHOD,
            request_serializer=RateLimitRequest.SerializeToString,
            response_deserializer=RateLimitResponse.FromString,
        )
        return int(check(request, timeout=PATIENCE_S).overall_code)


def sized(descriptors: int, entries: int) -> RateLimitRequest:
    descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="k", value="v")] * entries)
    return RateLimitRequest(domain="eg/web/http", descriptors=[descriptor] * descriptors)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_requests_are_as_large_as_envoy_gateways_policies_make_them(tmp_path: Path, transport: str) -> None:
    with replaced(tmp_path, HEADGATE_TRANSPORT=transport) as headgate:
        for descriptors, entries in ((256, 1), (1, 256), (50, 50)):
            assert asked(headgate.grpc, sized(descriptors, entries)) == RateLimitResponse.OK
        for request, said in (
            (sized(257, 1), r"257 descriptors: accepted are 1 to 256 \(max_descriptors\)"),
            (sized(1, 257), r"descriptors\[0\] has 257 entries: accepted are 1 to 256 \(max_entries\)"),
        ):
            with pytest.raises(grpc.RpcError, match=said):
                asked(headgate.grpc, request)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_only_envoys_certificate_is_let_in(tmp_path: Path, transport: str) -> None:
    """`GRPC_SERVER_TLS_CA_CERT` is Envoy Gateway's name of the authority of its Envoys."""
    ca = authority("envoy-gateway")
    (tmp_path / "ca.crt").write_bytes(ca.cert_pem)
    cert, key = issued_by(ca, "envoy-rate-limit").write(tmp_path, "tls")
    files = {"GRPC_SERVER_TLS_CERT": cert, "GRPC_SERVER_TLS_KEY": key, "GRPC_SERVER_TLS_CA_CERT": f"{tmp_path}/ca.crt"}
    envoy, foreign = issued_by(ca, "envoy"), issued_by(authority("another"), "envoy")
    request = sized(1, 1)
    with replaced(tmp_path, HEADGATE_TRANSPORT=transport, GRPC_SERVER_USE_TLS="true", **files) as headgate:
        shown = grpc.ssl_channel_credentials(ca.cert_pem, envoy.key_pem, envoy.cert_pem)
        assert asked(headgate.grpc, request, shown) == RateLimitResponse.OK
        for refused in (
            grpc.ssl_channel_credentials(ca.cert_pem),
            grpc.ssl_channel_credentials(ca.cert_pem, foreign.key_pem, foreign.cert_pem),
        ):
            with pytest.raises(grpc.RpcError) as failed:
                asked(headgate.grpc, request, refused)
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


def test_it_is_ready_without_rules_where_that_is_forced(tmp_path: Path) -> None:
    environ = {**ENVIRON, "RUNTIME_ROOT": str(tmp_path)}
    with start(environ=environ, program=RATELIMIT) as none:
        assert none.wait_exit() == 1, none.lines
    with start(environ={**environ, "FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}, program=RATELIMIT) as one:
        one.wait_ready()
        assert one.get("/healthcheck").status == 200
        write_rules(tmp_path / "ratelimit" / "config", RULES)
        wait_until(lambda: one.get("/rules").json()["total"] == 1, "the rules to come")
