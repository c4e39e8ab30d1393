"""TLS: what is verified, and what is said when it does not hold.

The redis-server at hand speaks no TLS, so a proxy in front of it does.
"""

import asyncio
import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from headgate.clock import SystemClock
from headgate.origin.interface import OriginError
from headgate.origin.redis_origin import link
from headgate.origin.select import open_origin

from examples.envoy.certificates import verifiable
from tests.conformance.origin.cases import said
from tests.conformance.origin.conftest import RedisSetup
from tests.conformance.origin.test_redis_secrets import Log
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import PATIENCE_S

TIMEOUT_S = PATIENCE_S


@dataclass(frozen=True)
class Certificates:
    """Files: an authority, a server that it vouches for at 127.0.0.1, another server, and a client."""

    directory: Path

    def path(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def server(self, name: str, *, client_ca: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(name), self.path(f"{name}-key"))
        if client_ca:
            context.load_verify_locations(self.path("ca"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("tls")
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("ca", ca_key, "ca", ca_key, [], authority=True)
    _write(directory, "ca", ca, ca_key)
    localhost: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    elsewhere: list[x509.GeneralName] = [x509.DNSName("elsewhere.example")]
    for name, hosts in (("here", localhost), ("elsewhere", elsewhere), ("client", elsewhere)):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(directory, name, _certificate(name, key, "ca", ca_key, hosts), key)
    stranger_key = ec.generate_private_key(ec.SECP256R1())
    stranger = _certificate("stranger", stranger_key, "stranger", stranger_key, [], authority=True)
    _write(directory, "stranger", stranger, stranger_key)
    return Certificates(directory)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: list[x509.GeneralName],
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    builder = verifiable(builder, key.public_key(), issuer_key.public_key(), authority=authority)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _write(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / f"{name}-key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip


async def ask(url: str, log: Log | None = None) -> str:
    """What goes wrong with a call, or nothing."""
    origin = open_origin(url, clock=SystemClock(), logger=log or Log())
    try:
        await origin.run(0, said(), TIMEOUT_S)
    except OriginError as error:
        return str(error)
    finally:
        await origin.close()
    return ""


async def test_a_server_that_its_authority_vouches_for_is_trusted(
    one_redis: RedisSetup, certificates: Certificates
) -> None:
    async with TcpProxy(one_redis.first.port, tls=certificates.server("here")) as proxy:
        log = Log()
        assert await ask(f"rediss://{proxy.address}?ca={certificates.path('ca')}", log) == ""
        assert log.risks == []


async def test_an_unknown_authority_is_refused(one_redis: RedisSetup, certificates: Certificates) -> None:
    async with TcpProxy(one_redis.first.port, tls=certificates.server("here")) as proxy:
        refused = "its TLS certificate is not accepted"
        assert refused in await ask(f"rediss://{proxy.address}")
        assert refused in await ask(f"rediss://{proxy.address}?ca={certificates.path('stranger')}")
        log = Log()
        assert await ask(f"rediss://{proxy.address}?verify=none", log) == ""
        (risk,) = log.risks
        assert "is not verified (verify=none)" in risk


async def test_a_certificate_for_another_host_is_refused(one_redis: RedisSetup, certificates: Certificates) -> None:
    async with TcpProxy(one_redis.first.port, tls=certificates.server("elsewhere")) as proxy:
        url = f"rediss://{proxy.address}?ca={certificates.path('ca')}"
        assert "its TLS certificate is not accepted" in await ask(url)
        assert await ask(f"{url}&verify=chain") == ""


async def test_a_certificate_of_our_own_is_shown(one_redis: RedisSetup, certificates: Certificates) -> None:
    async with TcpProxy(one_redis.first.port, tls=certificates.server("here", client_ca=True)) as proxy:
        url = f"rediss://{proxy.address}?ca={certificates.path('ca')}"
        assert "client certificate, and the origin URL has none" in await ask(url)
        mine = f"&cert={certificates.path('client')}&key={certificates.path('client-key')}"
        assert await ask(url + mine) == ""


async def test_a_server_without_tls_is_no_server(one_redis: RedisSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the rest of a command, and we for its certificate."""
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_S", 1.0)
    refused = await ask(f"rediss://{one_redis.first.address}")
    assert "no connection in 1 s" in refused
    assert "a port without TLS" in refused
    assert "use redis://" in refused


async def test_a_server_that_answers_without_tls_is_named(one_redis: RedisSetup) -> None:
    """One that says something at once, as a Redis with a password would to a command that it understands."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR this is no TLS\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "it does not speak TLS on this port: use redis://" in await ask(f"rediss://127.0.0.1:{port}")


async def test_files_that_are_not_there_are_named(one_redis: RedisSetup) -> None:
    said = await ask(f"rediss://{one_redis.first.address}?ca=/not/there.pem")
    assert said.endswith("a TLS file of the origin URL is not there: /not/there.pem")
