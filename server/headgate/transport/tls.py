"""TLS files: checked at start, picked up again when they change.

A pair that is half-written, mismatched or gone keeps the one in use: certificates are
renewed by other programs, file by file, and no such moment may cut callers off.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from structlog.typing import FilteringBoundLogger

from headgate.errors import ConfigError
from headgate.transport.files import FileIdentity, identity_of


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
    watcher = CertificateWatcher(files, logger)
    return grpc.dynamic_ssl_server_credentials(
        watcher.configuration,
        watcher.fetch,  # type: ignore[arg-type]  # None, for "unchanged", is documented but not in the stubs
        require_client_authentication=files.client_ca is not None,
    )


class CertificateWatcher:
    """Looks at the files on each handshake (three `stat`s), reads them when they changed."""

    def __init__(
        self,
        files: TlsFiles,
        logger: FilteringBoundLogger,
        configure: Callable[..., grpc.ServerCertificateConfiguration] = grpc.ssl_server_certificate_configuration,
    ) -> None:
        self._files = files
        self._logger = logger
        self._configure = configure
        self._seen = _identity(files)
        self._contents = _read(files)
        self.configuration = self._build()

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """What to use from now on, or None to stay with what is used. Called on grpc's threads."""
        seen = _identity(self._files)
        if seen == self._seen:
            return None
        # Set before reading: a file that changes meanwhile is looked at again.
        self._seen = seen
        try:
            contents = _read(self._files)
        except ConfigError as error:
            self._logger.warning("tls_reload_failed", reason=str(error))
            return None
        if contents == self._contents:
            return None
        self._contents = contents
        self._logger.info("tls_reloaded", cert=self._files.cert)
        self.configuration = self._build()
        return self.configuration

    def _build(self) -> grpc.ServerCertificateConfiguration:
        cert, key, *client_ca = self._contents
        return self._configure([(key, cert)], root_certificates=client_ca[0] if client_ca else None)


def _identity(files: TlsFiles) -> tuple[FileIdentity, ...]:
    return tuple(map(identity_of, files.paths()))


def _read(files: TlsFiles) -> tuple[bytes, ...]:
    """The files' contents, known to fit together."""
    contents = tuple(_read_file(path) for path in files.paths())
    _check_pair(files)
    if files.client_ca is not None:
        _check_authorities(files.client_ca, contents[2])
    # The check read the files by itself: it holds for what we read only if that is still there.
    if contents != tuple(_read_file(path) for path in files.paths()):
        raise ConfigError(f"{files.cert}: changed while it was read")
    return contents


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _check_pair(files: TlsFiles) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{files.cert} and {files.key} are no certificate and its key: {reason}") from error


def _check_authorities(path: str, contents: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=contents.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{path}: no certificates in PEM form") from error


def _no_password() -> str:
    # Without this OpenSSL asks on the terminal, and a server would hang at start.
    raise ValueError("the key is encrypted")
