"""TLS files: checked at start, picked up again when they change.

A pair that is half-written, mismatched or gone keeps the one in use: certificates are
renewed by other programs, file by file, and no such moment may cut callers off.
"""

import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
from structlog.typing import FilteringBoundLogger

from headgate.endpoint.files import FileIdentity, identity_of
from headgate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca`, callers must show a certificate that it signed (mTLS)."""

    cert: str
    key: str
    client_ca: str | None = None

    def paths(self) -> tuple[str, ...]:
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)


def server_credentials(files: TlsFiles, logger: FilteringBoundLogger) -> grpc.ServerCredentials:
    """Credentials that follow the files. Raises ConfigError naming the one that can't be used.

    grpc-core offers TLS 1.2 and 1.3 only.
    """
    watcher = CertificateWatcher(files, logger, _grpc_configuration)
    return grpc.dynamic_ssl_server_credentials(
        watcher.configuration,
        watcher.fetch,  # type: ignore[arg-type]  # None, for "unchanged", is documented but not in the stubs
        require_client_authentication=files.client_ca is not None,
    )


def server_context(files: TlsFiles, logger: FilteringBoundLogger) -> Callable[[], ssl.SSLContext]:
    """The context for the next handshake, which follows the files. Raises ConfigError as above."""
    return CertificateWatcher(files, logger, _ssl_context).current


def client_credentials(files: TlsFiles, contents: "Contents") -> grpc.ChannelCredentials:
    """Make a client's credentials for a `CertificateWatcher`: the certificate it shows and the authorities it trusts
    (`client_ca`).
    """
    _ssl_context(files, contents)
    cert, key, *authorities = contents
    return grpc.ssl_channel_credentials(authorities[0] if authorities else None, key, cert)


Configuration = TypeVar("Configuration")
Contents = tuple[bytes, ...]
"""Bytes of certificate, key and, if there are any, authorities."""


class CertificateWatcher(Generic[Configuration]):
    """Looks at the files on each handshake (three `stat`s), reads them when they changed."""

    def __init__(
        self, files: TlsFiles, logger: FilteringBoundLogger, configure: Callable[[TlsFiles, Contents], Configuration]
    ) -> None:
        self._files = files
        self._logger = logger
        self._configure = configure
        self._seen = _identity(files)
        self._contents, self.configuration = self._load()

    def current(self) -> Configuration:
        """Return the configuration of the files as they are now, or as they were when they could last be used."""
        return self.fetch() or self.configuration

    def fetch(self) -> Configuration | None:
        """Return the new configuration, or None while the files are unchanged. May be called on any one thread."""
        seen = _identity(self._files)
        if seen == self._seen:
            return None
        # Set before reading: a file that changes meanwhile is looked at again.
        self._seen = seen
        try:
            contents, configuration = self._load()
        except ConfigError as error:
            self._logger.warning("tls_reload_failed", reason=str(error))
            return None
        if contents == self._contents:
            return None
        self._contents, self.configuration = contents, configuration
        self._logger.info("tls_reloaded", cert=self._files.cert)
        return configuration

    def _load(self) -> tuple[Contents, Configuration]:
        """The files' contents, known to fit together, and what they make."""
        files = self._files
        contents = _read(files)
        configuration = self._configure(files, contents)
        # It may have read the files by itself: it holds for what we read only if that is still there.
        if contents != _read(files):
            raise ConfigError(f"{files.cert}: changed while it was read")
        return contents, configuration


def _grpc_configuration(files: TlsFiles, contents: Contents) -> grpc.ServerCertificateConfiguration:
    _ssl_context(files, contents)  # grpc-core would find out at a handshake
    cert, key, *client_ca = contents
    return grpc.ssl_server_certificate_configuration(
        [(key, cert)], root_certificates=client_ca[0] if client_ca else None
    )


def _ssl_context(files: TlsFiles, contents: Contents) -> ssl.SSLContext:
    """TLS 1.2 and 1.3 only, as grpc-core has it, for HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{files.cert} and {files.key} are no certificate and its key: {reason}") from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(cadata=contents[2].decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{files.client_ca}: no certificates in PEM form") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def names_of_certificate(certificate: Mapping[str, Any] | None) -> list[str]:
    """The SANs of what `ssl.SSLSocket.getpeercert()` gives."""
    return [name for _, name in (certificate or {}).get("subjectAltName", ())]


def names_of_auth_context(context: Mapping[str, Iterable[bytes]]) -> list[str]:
    """The SANs of what grpcio's `auth_context()` gives."""
    return [name.decode("utf-8", "replace") for name in context.get("x509_subject_alternative_name", ())]


def _identity(files: TlsFiles) -> tuple[FileIdentity, ...]:
    return tuple(map(identity_of, files.paths()))


def _read(files: TlsFiles) -> Contents:
    try:
        return tuple([Path(path).read_bytes() for path in files.paths()])
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error


def _no_password() -> str:
    # Without this OpenSSL asks on the terminal, and a server would hang at start.
    raise ValueError("the key is encrypted")
