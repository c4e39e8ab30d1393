"""Which listener serves what, to whom: the table, and that a listener keeps to it."""

import socket
from pathlib import Path

import pytest
import structlog
from headgate.config import Settings
from headgate.endpoint.tokens import TokenFile
from headgate.errors import Forbidden, Unauthenticated
from headgate.runtime.access import grpc_callers, http_endpoints, open_tokens
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.http_access import HttpAccess, Surface
from headgate.transport.http_hosts import HostNames
from headgate.transport.http_listener import HttpEndpoint, HttpListener

from tests.support.clock import ManualClock
from tests.support.source import ROOT

BEARER = {"authorization": "Bearer one"}
ALL = ("/healthz", "/readyz", "/json", "/rules", "/metrics", "/version")


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    (tmp_path / "t").write_text("one\n")
    return TokenFile(str(tmp_path / "t"), structlog.get_logger())


def allowed(access: HttpAccess, path: str, headers: dict[str, str]) -> bool | str:
    try:
        access.check(path, headers)
    except (Unauthenticated, Forbidden) as error:
        return type(error).__name__
    return True


def test_decisions_and_rules_need_what_grpc_needs(tokens: TokenFile) -> None:
    for path in ALL:
        guarded = path in ("/json", "/rules")
        for certificates in (False, True):
            with_tokens = HttpAccess(Surface.EVERYTHING, tokens, certificates)
            assert allowed(with_tokens, path, BEARER) is True
            assert allowed(with_tokens, path, {}) == ("Unauthenticated" if guarded else True)
        only_certificates = HttpAccess(Surface.EVERYTHING, None, True)
        assert allowed(only_certificates, path, BEARER) == ("Forbidden" if guarded else True)
        assert allowed(HttpAccess(), path, {}) is True


def test_a_host_is_an_address_or_a_name_that_no_public_dns_has_or_one_that_was_named() -> None:
    """Kubelet and Envoy ask for the pod's address; compose and a cluster for a name of their own."""
    known = ["", "10.1.2.3:8080", "127.0.0.1", "[::1]:8080", "[fd00::7]", "localhost:80", "headgate:80", "a.localhost"]
    known += ["headgate.edge.svc", "headgate.edge.svc.cluster.local:8080", socket.gethostname()]
    access = HttpAccess(hosts=HostNames.of(["Gate.example.com"]))
    for host in [*known, "gate.example.com:8080", "GATE.EXAMPLE.COM"]:
        assert allowed(access, "/json", {"Host": host}) is True, host
    strange = ["evil.example", "evil.example:8080", "127.0.0.1.evil.io", "gate.example.com.evil", "localhost.evil.io"]
    for host in strange:
        assert allowed(access, "/json", {"Host": host}) == "Forbidden", host
        assert allowed(access, "/healthz", {"Host": host}) is True
        assert allowed(HttpAccess(hosts=HostNames.of(["*"])), "/json", {"Host": host}) is True


def test_a_host_is_looked_at_where_no_token_is_demanded(tokens: TokenFile) -> None:
    strange = {"Host": "evil.example"}
    assert allowed(HttpAccess(tokens=tokens), "/json", {**strange, **BEARER}) is True
    assert allowed(HttpAccess(Surface.OPERATORS), "/top", strange) == "Forbidden"
    HttpAccess().check("/json", strange, over_network=False)


def listening(settings: Settings, tokens: TokenFile | None) -> list[tuple[str, HttpAccess]]:
    logger = BoundedLogger(structlog.get_logger(), ManualClock())
    endpoints = http_endpoints(settings, tokens, logger, max_body_bytes=1)
    return [(endpoint.address, endpoint.access) for endpoint in endpoints]


def test_settings_say_what_listens(tmp_path: Path, tokens: TokenFile) -> None:
    assert listening(Settings(rules=tmp_path, http="h:1"), tokens) == [
        ("h:1", HttpAccess(Surface.EVERYTHING, tokens, False, HostNames.of(["h"])))
    ]
    # Two free ports are two listeners.
    two = listening(Settings(rules=tmp_path, http="h:0", admin="h:0", tls_client_ca=tmp_path), None)
    hosts = HostNames.of(["h"])
    callers, operators = HttpAccess(Surface.CALLERS, None, True, hosts), HttpAccess(Surface.OPERATORS, hosts=hosts)
    assert two == [("h:0", callers), ("h:0", operators)]


def test_settings_say_who_may_call(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("one\n")
    assert open_tokens(Settings(rules=tmp_path), structlog.get_logger()) is None
    settings = Settings(rules=tmp_path, token_file=tmp_path / "t", tls_client_san=("a.example",))
    callers = grpc_callers(settings, open_tokens(settings, structlog.get_logger()))
    assert callers.tokens is not None
    assert callers.names is not None
    assert callers.names.allows(["a.example"])
    assert grpc_callers(Settings(rules=tmp_path), None).names is None


@pytest.mark.parametrize("address", ["[::]:0", "127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_a_listener_can_be_begun_again_where_it_was(address: str) -> None:
    logger = BoundedLogger(structlog.get_logger(), ManualClock())
    first = HttpListener(HttpEndpoint(address, logger), [])
    await first.start()
    taken = first.address
    assert taken.rpartition(":")[0] == address.rpartition(":")[0]
    await first.stop()
    again = HttpListener(HttpEndpoint(taken, logger), [])
    await again.start()
    await again.stop()


def test_the_page_on_security_says_who_gets_what() -> None:
    """Each path of each listener, in its row."""
    page = (ROOT / "docs" / "security.md").read_text()
    callers, admin = page.index("\n| `--http` |"), page.index("\n| `--admin` |")
    for rows, surface in (
        (page[callers:admin], Surface.EVERYTHING),
        (page[admin:].partition("\n| `--admin-grpc` |")[0], Surface.OPERATORS),
    ):
        assert sorted(path for path in surface.value - {"/"} if f"`{path}`" not in rows) == []
