"""Bearer tokens from a file of the operator's, followed while it changes. Messages never repeat a token."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.files import read_bounded
from headgate.endpoint.followed import FollowedFile, Kept
from headgate.errors import ConfigError, Unauthenticated

AUTHORIZATION: Final = "authorization"

MAX_FILE_BYTES: Final = 256 * 1024
MAX_TOKENS: Final = 1_000
"""One per owner and one more while it is rotated is a few dozen; this many is another kind of file."""

MAX_TOKEN_CHARS: Final = 4096
"""The native front takes 16 KiB of metadata; no token in use is near that."""

MAX_ACCEPTED: Final = 4 * MAX_TOKENS
"""Spellings of accepted headers that are remembered: `Bearer t` and `bearer t` are two."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750's grammar of a bearer token."""

_PREFIX_BYTES: Final = 8
"""Bytes of a digest that find the one token to compare; the comparison takes all bytes, in constant time."""

NO_TOKEN = "a valid bearer token is needed: send `authorization: Bearer TOKEN`"  # noqa: S105 - a message


def is_token(text: str) -> bool:
    return len(text) <= MAX_TOKEN_CHARS and _TOKEN.fullmatch(text) is not None


def digest_of(token: str) -> bytes:
    """Hash a token for keeping and comparing."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def bearer_token(header: str | bytes | None) -> str | None:
    """The token in an `authorization` header; None where there is none."""
    if header is None:
        return None
    scheme, _, token = _text(header).partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def header_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | bytes | None:
    """The `authorization` header among a call's metadata."""
    for name, value in metadata or ():
        if name == AUTHORIZATION:
            return value
    return None


def _text(header: str | bytes) -> str:
    return header.decode("latin-1") if isinstance(header, bytes) else header


class FollowedTokens(FollowedFile[Kept]):
    """Tokens of a file, read again when the file changes. The first reading raises ConfigError."""

    def __init__(self, path: str, logger: FilteringBoundLogger, read: Callable[[str], Kept]) -> None:
        super().__init__(path, logger, read, "tokens")

    def log_reloaded(self) -> None:
        self.logger.info("tokens_reloaded", file=self.path, tokens=len(self))

    def log_failed(self) -> None:
        self.logger.warning("tokens_reload_failed", reason=self.error, tokens=len(self))

    @property
    def _tokens(self) -> Kept:
        return self.kept


def token_lines(setting: str, path: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank and does not begin with `#`. Raises ConfigError."""
    try:
        text = read_bounded(path, MAX_FILE_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{setting} {path}: a token is ASCII, byte {error.start} is not") from None
    except ConfigError as error:
        raise ConfigError(f"{setting} {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


Owner = TypeVar("Owner", bound=str | None)


def read_owners(
    setting: str, path: str, split: Callable[[str, str], tuple[Owner, str]], *, form: str, says: str = ""
) -> dict[bytes, Owner]:
    """Digest of each token of a file to its owner: tokens themselves are not kept. Raises ConfigError.

    `split` makes owner and token of a line, and is told where that is; a token `says` who its owner is; `form` is how
    to write one.
    """
    owners: dict[bytes, Owner] = {}
    for number, line in token_lines(setting, path):
        at = f"{setting} {path}:{number}"
        owner, token = split(line, at)
        if owners.setdefault(digest_of(token), owner) != owner:
            raise ConfigError(f"{at}: another line has this token too: it says {says}, so give each its own")
    if not owners:
        raise ConfigError(f"{setting} {path}: holds no token: write {form}")
    if len(owners) > MAX_TOKENS:
        raise ConfigError(f"{setting} {path}: {len(owners)} tokens, at most {MAX_TOKENS} are accepted")
    return owners


def owner_of(header: str | bytes | None, owners: Mapping[bytes, Owner], wanted: str) -> Owner:
    """Find the owner of the token in an `authorization` header. Raises Unauthenticated, and says which is `wanted`.

    All are compared with the one that comes, so that the time it takes says nothing.
    """
    digest = digest_of(bearer_token(header) or "")
    found = [owner for known, owner in owners.items() if hmac.compare_digest(known, digest)]
    if not found:
        raise Unauthenticated(f"{NO_TOKEN}, {wanted}")
    return found[0]


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
        token = bearer_token(header)
        if token is None or not self._is_known(token):
            return False
        if len(self._accepted) < MAX_ACCEPTED:
            self._accepted.add(header)
        return True

    def _is_known(self, token: str) -> bool:
        digest = digest_of(token)
        return hmac.compare_digest(self._by_prefix.get(digest[:_PREFIX_BYTES], b""), digest)


class TokenFile(FollowedTokens[_Tokens]):
    """One token per line; blank lines and lines that begin with `#` don't count. Raises ConfigError at first."""

    def __init__(self, path: str, logger: FilteringBoundLogger) -> None:
        super().__init__(path, logger, _read_tokens)

    def allows(self, header: str | bytes | None) -> bool:
        """Return true if an `authorization` header holds one of the tokens. Any thread may call it."""
        return header is not None and self._tokens.allows(_text(header))


def _read_tokens(path: str) -> _Tokens:
    return _Tokens(read_owners("token_file", path, _anybodys, form="one per line"))


def _anybodys(token: str, at: str) -> tuple[None, str]:
    """A line that is a token: it does not matter whose."""
    if not is_token(token):
        raise ConfigError(
            f"{at}: not a bearer token: one per line, of letters, digits and -._~+/ (= at its end), "
            f"at most {MAX_TOKEN_CHARS} characters"
        )
    return None, token
