"""Operators who may use the admin side: known by a token or by a certificate, each with a name for the audit log.

A token file has lines `NAME=TOKEN`, so that it is known who did what; several lines may have one name while a token is
rotated. A certificate's name is the first of its SANs.
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.tls import names_of_auth_context
from headgate.endpoint.tokens import (
    MAX_TOKEN_CHARS,
    NO_TOKEN,
    FollowedTokens,
    bearer_token,
    digest_of,
    header_of,
    is_token,
    token_lines,
)
from headgate.errors import ConfigError, Forbidden, Unauthenticated

MAX_ADMIN_TOKENS: Final = 1_000
"""Lines of a token file. All are compared with each one that comes, so that the time it takes says nothing."""
MAX_WHO_CHARS: Final = 100
"""Longest operator's name in the log and in an override, in characters."""
_SETTING: Final = "admin_token_file"

AllowsNames = Callable[[Iterable[str]], bool]


@dataclass(frozen=True, slots=True)
class _AdminTokens:
    """One state of the file."""

    owners: Sequence[tuple[bytes, str]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.owners)


class AdminTokens(FollowedTokens[_AdminTokens]):
    """A file with lines `NAME=TOKEN`. Raises ConfigError at first."""

    def __init__(self, path: str, logger: FilteringBoundLogger) -> None:
        super().__init__(path, logger, _read)

    def owner_of(self, header: str | bytes | None) -> str:
        """Name of the operator whose token an `authorization` header has. Raises Unauthenticated."""
        digest = digest_of(bearer_token(header) or "")
        found = [name for known, name in self._tokens.owners if hmac.compare_digest(known, digest)]
        if not found:
            raise Unauthenticated(f"{NO_TOKEN}, one of {_SETTING}")
        return found[0]


def _read(path: str) -> _AdminTokens:
    owners: dict[bytes, str] = {}
    for number, line in token_lines(_SETTING, path):
        at = f"{_SETTING} {path}:{number}"
        name, _, token = line.partition("=")
        if not name.strip() or not is_token(token.strip()) or is_token(line):
            raise ConfigError(
                f"{at}: expected NAME=TOKEN, where NAME is who uses it (for the audit log) and TOKEN has letters, "
                f"digits and -._~+/ (= at its end), at most {MAX_TOKEN_CHARS} characters"
            )
        digest, who = digest_of(token.strip()), name.strip()[:MAX_WHO_CHARS]
        if owners.setdefault(digest, who) != who:
            raise ConfigError(f"{at}: another line has this token too: it says who it is, so give each its own")
    if not owners:
        raise ConfigError(f"{_SETTING} {path}: holds no token: write lines NAME=TOKEN")
    if len(owners) > MAX_ADMIN_TOKENS:
        raise ConfigError(f"{_SETTING} {path}: {len(owners)} tokens, at most {MAX_ADMIN_TOKENS} are accepted")
    return _AdminTokens(tuple(owners.items()))


@dataclass(frozen=True, slots=True)
class Operator:
    """Operator who makes a call: a name that was proved, and the address."""

    who: str
    peer: str


@dataclass(frozen=True, slots=True)
class Admins:
    """Proofs that operators must show: a token, a certificate (the listener checks it), or both. Without either no call
    passes.
    """

    tokens: AdminTokens | None
    certificates: bool
    """True if the listener demands a certificate."""
    allows_names: AllowsNames | None = None
    """Check that allows one of a certificate's names; None allows any certificate that the listener accepts."""

    def identify(self, context: Any) -> Operator:
        """Identify the operator who makes a call of grpcio's. Raises Unauthenticated or Forbidden."""
        proofs: list[str] = []
        if self.certificates:
            names = names_of_auth_context(context.auth_context())
            if self.allows_names is not None and not self.allows_names(names):
                raise Forbidden("the client certificate has no name (SAN) that is allowed here")
            proofs.append(names[0] if names else "a certificate without a name")
        if self.tokens is not None:
            proofs.append(self.tokens.owner_of(header_of(context.invocation_metadata())))
        if not proofs:
            raise Unauthenticated(NO_TOKEN)
        return Operator("/".join(reversed(proofs))[:MAX_WHO_CHARS], str(context.peer()))
