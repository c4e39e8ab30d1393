"""Who may ask: bearer tokens from a file, and the names in a client's certificate.

Both are allow-lists, and both are asked for a plain value: a header's text, the names of a
certificate. So the same lists serve every listener, whatever it hands over. A token file
is read again when it changes; one that can't be used keeps what is in force, because
tokens are rotated by other programs, and half a file must not lock everybody out.
"""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.errors import ConfigError, Forbidden, Unauthenticated
from headgate.transport.files import FileIdentity, identity_of, read_bounded

AUTHORIZATION: Final = "authorization"

POLL_S: Final = 1.0
"""How often the token file is looked at: a new token works, and an old one ends, within about this."""

MAX_FILE_BYTES: Final = 256 * 1024
MAX_TOKENS: Final = 1_000
"""One per caller and one more while it is rotated is a few dozen; this many is another kind of file."""

MAX_TOKEN_CHARS: Final = 4096
"""The native front takes 16 KiB of metadata; no token in use is near that."""

MAX_ACCEPTED: Final = 4 * MAX_TOKENS
"""Spellings of accepted headers that are remembered: `Bearer t` and `bearer t` are two."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What RFC 6750 lets a bearer token be."""

_PREFIX_BYTES: Final = 8
"""Of a digest: finds the one token that it may be; whether it is that one takes all bytes, in constant time."""

NO_TOKEN = "a valid bearer token is needed: send `authorization: Bearer TOKEN`"  # noqa: S105 - a message
NAME_NOT_ALLOWED = "the client certificate has no name (SAN) that is allowed here"


class _Tokens:
    """The tokens of one state of the file, as digests. Immutable but for what it remembers."""

    def __init__(self, digests: Iterable[bytes]) -> None:
        self._by_prefix = {digest[:_PREFIX_BYTES]: digest for digest in digests}
        self._accepted: set[str] = set()

    def __len__(self) -> int:
        return len(self._by_prefix)

    def allows(self, header: str) -> bool:
        # A set compares texts only where their keyed hashes are equal, so how long it takes says
        # nothing of how much of a guess was right.
        if header in self._accepted:
            return True
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not self._is_known(token.strip()):
            return False
        if len(self._accepted) < MAX_ACCEPTED:
            self._accepted.add(header)
        return True

    def _is_known(self, token: str) -> bool:
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(self._by_prefix.get(digest[:_PREFIX_BYTES], b""), digest)


class TokenFile:
    """One token per line; blank lines and lines that begin with `#` don't count. Raises ConfigError at first."""

    def __init__(self, path: str, logger: FilteringBoundLogger) -> None:
        self.failures = 0
        """Changes that could not be used."""
        self._path = path
        self._logger = logger
        self._seen: FileIdentity = identity_of(path)
        self._tokens = _Tokens(_read_tokens(path))

    def __len__(self) -> int:
        return len(self._tokens)

    def allows(self, header: str | bytes | None) -> bool:
        """Whether an `authorization` header holds one of the tokens. Any thread may ask."""
        if header is None:
            return False
        if isinstance(header, bytes):
            header = header.decode("latin-1")
        return self._tokens.allows(header)

    def refresh(self) -> None:
        """Look at the file, and take what it says if it changed."""
        seen = identity_of(self._path)
        if seen == self._seen:
            return
        # Set before reading: a file that changes meanwhile is looked at again.
        self._seen = seen
        try:
            self._tokens = _Tokens(_read_tokens(self._path))
        except ConfigError as error:
            self.failures += 1
            self._logger.warning("tokens_reload_failed", reason=str(error), tokens=len(self))
        else:
            self._logger.info("tokens_reloaded", file=self._path, tokens=len(self))

    async def watch(self) -> None:
        """Follow the file until cancelled, beside the loop: its file system may be slow."""
        while True:
            await asyncio.sleep(POLL_S)
            await asyncio.to_thread(self.refresh)


def _read_tokens(path: str) -> list[bytes]:
    """Their digests: the tokens themselves are not kept, and no message repeats one."""
    try:
        text = read_bounded(path, MAX_FILE_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise ConfigError(f"token_file {path}: a token is ASCII, byte {error.start} is not") from None
    except ConfigError as error:
        raise ConfigError(f"token_file {error}") from error
    digests: dict[bytes, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) > MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"token_file {path}:{number}: not a bearer token: one per line, of letters, digits and -._~+/ "
                f"(= at its end), at most {MAX_TOKEN_CHARS} characters"
            )
        digests[hashlib.sha256(token.encode()).digest()] = None
    if not digests:
        raise ConfigError(f"token_file {path}: holds no token: write one per line")
    if len(digests) > MAX_TOKENS:
        raise ConfigError(f"token_file {path}: {len(digests)} tokens, at most {MAX_TOKENS} are accepted")
    return list(digests)


class SanList:
    """Names of client certificates that are allowed.

    An entry is a whole name: a DNS name (any case), a URI such as a SPIFFE id, an address or
    an e-mail address. `*.example.com` stands for one label before the rest, and `*` at the
    end of a URI for anything that follows.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        plain = [entry.lower() if "://" not in entry else entry for entry in entries]
        self._names = frozenset(entry for entry in plain if "*" not in entry)
        self._suffixes = tuple(entry[1:] for entry in plain if entry.startswith("*."))
        self._prefixes = tuple(entry[:-1] for entry in plain if entry.endswith("*") and "://" in entry)

    def allows(self, names: Iterable[str]) -> bool:
        """Whether any of a certificate's names is in the list."""
        return any(map(self._allows, names))

    def _allows(self, name: str) -> bool:
        if "://" in name:
            return name in self._names or name.startswith(self._prefixes)
        name = name.lower()
        _, dot, rest = name.partition(".")
        return name in self._names or (dot + rest) in self._suffixes


def names_of_certificate(certificate: Mapping[str, Any] | None) -> list[str]:
    """The SANs of what `ssl.SSLSocket.getpeercert()` gives."""
    return [name for _, name in (certificate or {}).get("subjectAltName", ())]


def names_of_auth_context(context: Mapping[str, Iterable[bytes]]) -> list[str]:
    """The SANs of what grpcio's `auth_context()` gives."""
    return [name.decode("utf-8", "replace") for name in context.get("x509_subject_alternative_name", ())]


@dataclass(frozen=True, slots=True)
class Callers:
    """What callers of gRPC must show; without either list everybody may call."""

    tokens: TokenFile | None = None
    names: SanList | None = None

    def check_token(self, header: str | bytes | None) -> None:
        if self.tokens is not None and not self.tokens.allows(header):
            raise Unauthenticated(NO_TOKEN)

    def check_names(self, names: Iterable[str]) -> None:
        if self.names is not None and not self.names.allows(names):
            raise Forbidden(NAME_NOT_ALLOWED)

    def check_context(self, context: Any) -> None:
        """A call of grpcio's."""
        if self.names is not None:
            self.check_names(names_of_auth_context(context.auth_context()))
        if self.tokens is not None:
            self.check_token(header_of(context.invocation_metadata()))


def header_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | bytes | None:
    """The `authorization` header among a call's metadata."""
    for name, value in metadata or ():
        if name == AUTHORIZATION:
            return value
    return None


EVERYBODY: Final = Callers()
