"""TLS and mTLS, on the transports that have them."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from headgate.endpoint.tls import TlsFiles
from headgate.errors import ConfigError

from tests.conformance.transport.certificates import Certificate, authority, issued_by
from tests.conformance.transport.harness import TIMEOUT_S, Kind, Server, call, make_transport, serving, status_of_call

CA = authority("ca")
OTHER_CA = authority("other ca")


@pytest.fixture(params=("guarded", "grpcio"))
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(*issued_by(CA, "first").write(tmp_path, "server"))


@pytest.fixture
def mutual(files: TlsFiles, tmp_path: Path) -> TlsFiles:
    client_ca = tmp_path / "clients.crt"
    client_ca.write_bytes(CA.cert_pem)
    return TlsFiles(files.cert, files.key, str(client_ca))


@asynccontextmanager
async def dialled_securely(
    server: Server, trusted: Certificate = CA, client: Certificate | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    credentials = grpc.ssl_channel_credentials(
        trusted.cert_pem, client.key_pem if client else None, client.cert_pem if client else None
    )
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials, options) as channel:
        yield channel


async def _answers(server: Server, trusted: Certificate = CA, client: Certificate | None = None) -> bool:
    async with dialled_securely(server, trusted, client) as channel:
        return bool(await call(channel, b"x") == b"echo:x")


async def _is_refused(server: Server, trusted: Certificate = CA, client: Certificate | None = None) -> bool:
    async with dialled_securely(server, trusted, client) as channel:
        return (await status_of_call(call(channel)))[0] == grpc.StatusCode.UNAVAILABLE


def _handshake(server: Server, version: ssl.TLSVersion | None = None) -> tuple[str, str]:
    """Protocol and common name that the server shows now, without a gRPC call."""
    context = ssl.create_default_context(cadata=CA.cert_pem.decode())
    context.set_alpn_protocols(["h2"])
    context.set_ciphers("ALL:@SECLEVEL=0")
    if version is not None:
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        certificate = secure.getpeercert()
        assert certificate
        subject = dict(pair[0] for pair in certificate["subject"])  # type: ignore[misc]
        return str(secure.version()), str(subject["commonName"])


async def test_calls_are_answered_over_tls(kind: Kind, files: TlsFiles) -> None:
    async with serving(kind, tls=files) as server:
        assert await _answers(server)
        assert await _is_refused(server, trusted=OTHER_CA)


async def test_plaintext_is_refused_where_tls_is_set(kind: Kind, files: TlsFiles) -> None:
    async with serving(kind, tls=files) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            assert (await status_of_call(call(channel)))[0] == grpc.StatusCode.UNAVAILABLE
        assert await _answers(server)


async def test_callers_need_a_certificate_of_the_client_ca(kind: Kind, mutual: TlsFiles) -> None:
    async with serving(kind, tls=mutual) as server:
        assert await _answers(server, client=issued_by(CA, "client"))
        assert await _is_refused(server, client=None)
        assert await _is_refused(server, client=issued_by(OTHER_CA, "stranger"))


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_versions_before_1_2_are_refused(kind: Kind, files: TlsFiles) -> None:
    async with serving(kind, tls=files) as server:
        assert (await asyncio.to_thread(_handshake, server, ssl.TLSVersion.TLSv1_2))[0] == "TLSv1.2"
        assert (await asyncio.to_thread(_handshake, server, ssl.TLSVersion.TLSv1_3))[0] == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(_handshake, server, ssl.TLSVersion.TLSv1_1)


async def test_a_new_certificate_is_picked_up_and_connections_live_on(
    kind: Kind, files: TlsFiles, tmp_path: Path
) -> None:
    async with serving(kind, tls=files) as server, dialled_securely(server) as channel:
        assert await call(channel, b"x") == b"echo:x"
        assert (await asyncio.to_thread(_handshake, server))[1] == "first"
        issued_by(CA, "second").write(tmp_path, "server")
        assert (await asyncio.to_thread(_handshake, server))[1] == "second"
        assert await call(channel, b"x") == b"echo:x"
        assert server.events() == ["tls_reloaded"]


async def test_files_behind_a_link_that_moves_are_picked_up(kind: Kind, tmp_path: Path) -> None:
    """As Kubernetes replaces a mounted secret."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        issued_by(CA, name).write(tmp_path / name, "tls")
    link = tmp_path / "current"
    link.symlink_to("first")
    async with serving(kind, tls=TlsFiles(str(link / "tls.crt"), str(link / "tls.key"))) as server:
        assert (await asyncio.to_thread(_handshake, server))[1] == "first"
        (tmp_path / "next").symlink_to("second")
        os.replace(tmp_path / "next", link)
        assert (await asyncio.to_thread(_handshake, server))[1] == "second"


async def test_a_new_client_ca_is_picked_up(kind: Kind, mutual: TlsFiles) -> None:
    async with serving(kind, tls=mutual) as server:
        stranger = issued_by(OTHER_CA, "stranger")
        assert await _is_refused(server, client=stranger)
        _write(mutual.client_ca, OTHER_CA.cert_pem)
        assert await _answers(server, client=stranger)


@pytest.mark.parametrize("damage", ["mismatched", "half-written", "empty", "gone", "other key type"])
async def test_a_pair_that_is_broken_keeps_the_one_in_use(
    kind: Kind, files: TlsFiles, tmp_path: Path, damage: str
) -> None:
    second = issued_by(CA, "second")
    async with serving(kind, tls=files) as server:
        assert (await asyncio.to_thread(_handshake, server))[1] == "first"
        _damage(files, damage, second)
        for _ in range(3):
            assert (await asyncio.to_thread(_handshake, server))[1] == "first"
        assert server.events() == ["tls_reload_failed"]
        assert files.cert in server.log.calls[0].kwargs["reason"]
        second.write(tmp_path, "server")
        assert (await asyncio.to_thread(_handshake, server))[1] == "second"
        assert server.events() == ["tls_reload_failed", "tls_reloaded"]


def _damage(files: TlsFiles, damage: str, second: Certificate) -> None:
    match damage:
        case "mismatched":
            _write(files.cert, second.cert_pem)
        case "half-written":
            _write(files.cert, second.cert_pem[:200])
        case "empty":
            _write(files.cert, b"")
        case "gone":
            os.unlink(files.cert)
        case "other key type":
            _write(files.key, second.cert_pem)


def _write(path: str | None, contents: bytes) -> None:
    assert path is not None
    with open(path, "wb") as file:
        file.write(contents)


async def _start_error(kind: Kind, files: TlsFiles) -> str:
    transport, _ = make_transport(kind, tls=files)
    with pytest.raises(ConfigError) as caught:
        await transport.start()
    return str(caught.value)


async def test_files_that_cannot_be_used_are_named_at_start(kind: Kind, mutual: TlsFiles, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    other_cert, other_key = issued_by(CA, "other").write(tmp_path, "other")
    encrypted, nonsense = str(tmp_path / "encrypted.key"), str(tmp_path / "nonsense")
    certificate = issued_by(CA, "encrypted")
    _write(encrypted, certificate.encrypted_key_pem)
    _write(other_cert, certificate.cert_pem)
    _write(nonsense, b"nonsense")

    assert missing in await _start_error(kind, TlsFiles(missing, mutual.key))
    assert missing in await _start_error(kind, TlsFiles(mutual.cert, missing))
    assert missing in await _start_error(kind, TlsFiles(mutual.cert, mutual.key, missing))
    assert other_key in await _start_error(kind, TlsFiles(mutual.cert, other_key))
    assert nonsense in await _start_error(kind, TlsFiles(nonsense, mutual.key))
    assert nonsense in await _start_error(kind, TlsFiles(mutual.cert, mutual.key, nonsense))
    # It must not ask for a password on the terminal.
    assert "the key is encrypted" in await _start_error(kind, TlsFiles(other_cert, encrypted))
