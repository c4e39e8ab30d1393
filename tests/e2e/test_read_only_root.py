"""The service as Envoy Gateway runs it: uid 65534, a read-only root, and no directory for temporary files.

A mount namespace makes it so for the process alone. It may read everything (the interpreter of a developer lies in a
home directory); it may write into shared memory and nowhere else.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.headgate.v1.limits_pb2 import ReserveRequest, ReserveResponse, SettleRequest, SettleResponse

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import RATELIMIT, Headgate, http_request, start, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workers import METHOD

NOBODY = "65534"
READ_ONLY = (
    f"mount -o remount,ro,bind / && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs "
    '--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search "$@"'
)
PROGRAM = ("unshare", "--mount", "--", "sh", "-c", READ_ONLY, "sh", *RATELIMIT)
RULES = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1000}}\n"
USER = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="user", value="a")])
CHECK = RateLimitRequest(domain="edge", descriptors=[USER])
ESTIMATE = RateLimitRequest(domain="edge", descriptors=[USER], hits_addend=100)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"),
    reason="left out: a mount namespace needs root, unshare and setpriv",
)


@contextlib.contextmanager
def serving(directory: Path, redis: RedisServer, workers: int) -> Iterator[Headgate]:
    """The service with Envoy Gateway's environment, as far as files and sockets depend on it."""
    write_rules(directory / "ratelimit" / "config", RULES)
    ca = authority("envoy-gateway")
    (directory / "ca.crt").write_bytes(ca.cert_pem)
    issued_by(ca, "envoy").write(directory, "envoy")
    cert, key = issued_by(ca, "envoy-rate-limit").write(directory, "tls")
    environ = {
        "RUNTIME_ROOT": str(directory), "RUNTIME_SUBDIRECTORY": "ratelimit", "REDIS_URL": f"127.0.0.1:{redis.port}",
        "HOST": "127.0.0.1", "PORT": "0", "GRPC_HOST": "127.0.0.1", "GRPC_PORT": "0", "DEBUG_PORT": "0",
        "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": "127.0.0.1:0",
        "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": cert, "GRPC_SERVER_TLS_KEY": key,
        "GRPC_SERVER_TLS_CA_CERT": str(directory / "ca.crt"),
        "HEADGATE_WORKERS": str(workers), "HEADGATE_ORIGIN_DEADLINE_MS": "1000", "HEADGATE_DRAIN_S": "0", "TMPDIR": "",
    }  # fmt: skip
    with start(environ=environ, program=PROGRAM) as headgate:
        yield headgate.wait_ready()
        assert headgate.stop() == 0, headgate.lines


@contextlib.contextmanager
def called(directory: Path, address: str) -> Iterator[grpc.Channel]:
    files = [(directory / name).read_bytes() for name in ("ca.crt", "envoy.key", "envoy.crt")]
    options = [("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(*files), options) as channel:
        yield channel


def check(channel: grpc.Channel) -> int:
    ask = channel.unary_unary(
        METHOD,
        request_serializer=RateLimitRequest.SerializeToString,
        response_deserializer=RateLimitResponse.FromString,
    )
    return int(ask(CHECK, timeout=PATIENCE_S).overall_code)


def services(channel: grpc.Channel) -> list[str]:
    """The services that reflection names."""
    question = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    ask: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    (data,) = ask(iter([question]), timeout=PATIENCE_S)
    answer = reflection_pb2.ServerReflectionResponse.FromString(data)
    return [service.name for service in answer.list_services_response.service]


def reserve_and_settle(channel: grpc.Channel) -> None:
    reserve = channel.unary_unary(
        "/headgate.v1.Limits/Reserve", ReserveRequest.SerializeToString, ReserveResponse.FromString
    )
    settle = channel.unary_unary(
        "/headgate.v1.Limits/Settle", SettleRequest.SerializeToString, SettleResponse.FromString
    )
    reservation = reserve(ReserveRequest(request=ESTIMATE), timeout=PATIENCE_S)
    assert reservation.id
    assert settle(SettleRequest(id=reservation.id, actual=30), timeout=PATIENCE_S).settled


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_lost_without_a_place_to_write(tmp_path: Path, workers: int) -> None:
    """The guard, reflection, reservations, probes and metrics; with one process and with several."""
    with RedisServer() as redis, serving(tmp_path, redis, workers) as headgate:
        status = Path(f"/proc/{headgate.process.pid}/status").read_text()
        assert f"Uid:\t{NOBODY}" in status
        with called(tmp_path, headgate.grpc) as channel:
            assert check(channel) == RateLimitResponse.OK
            assert {"envoy.service.ratelimit.v3.RateLimitService", "headgate.v1.Limits"} <= set(services(channel))
            reserve_and_settle(channel)
        assert headgate.get("/healthcheck").body == b"OK"
        listens = headgate.wait_for_event("serving")
        assert b"edge" in http_request(listens["debug"], "GET", "/rlconfig").body
        wait_until(lambda: b"ratelimit_service_" in http_request(listens["metrics"], "GET", "/metrics").body, "metrics")
        problems = [event for event in headgate.events if event["level"] in ("warning", "error")]
        assert problems == []
