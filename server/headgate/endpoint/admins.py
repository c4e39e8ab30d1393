"""Operators who may use the admin side: known by a token or by a certificate, each with a name for the audit log.

A token file has lines `NAME=TOKEN`, so that it is known who did what; several lines may have one name while a token is
rotated. A certificate's name is the first of its SANs.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from structlog.typing import FilteringBoundLogger

from headgate.endpoint.methods import Request, parsed
from headgate.endpoint.tls import names_of_auth_context
from headgate.endpoint.tokens import (
    MAX_TOKEN_CHARS,
    NO_TOKEN,
    FollowedTokens,
    header_of,
    is_token,
    owner_of,
    read_owners,
)
from headgate.errors import ConfigError, Forbidden, Unauthenticated

MAX_WHO_CHARS: Final = 100
"""Longest operator's name in the log and in an override, in characters."""
_SETTING: Final = "admin_token_file"

AllowsNames = Callable[[Iterable[str]], bool]


class AdminTokens(FollowedTokens[dict[bytes, str]]):
    """A file with lines `NAME=TOKEN`. Raises ConfigError at first."""

    def __init__(self, path: str, logger: FilteringBoundLogger) -> None:
        super().__init__(path, logger, _read)

    def owner_of(self, header: str | bytes | None) -> str:
        """Name of the operator whose token an `authorization` header has. Raises Unauthenticated."""
        return owner_of(header, self._tokens, f"one of {_SETTING}")


def _read(path: str) -> dict[bytes, str]:
    return read_owners(_SETTING, path, _split, says="who it is", form="lines NAME=TOKEN")


def _split(line: str, at: str) -> tuple[str, str]:
    name, _, token = line.partition("=")
    if not name.strip() or not is_token(token.strip()) or is_token(line):
        raise ConfigError(
            f"{at}: expected NAME=TOKEN, where NAME is who uses it (for the audit log) and TOKEN has letters, "
            f"digits and -._~+/ (= at its end), at most {MAX_TOKEN_CHARS} characters"
        )
    return name.strip()[:MAX_WHO_CHARS], token.strip()


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

    def identify_by_token(self, header: str | None, peer: str) -> Operator:
        """Identify an operator who can show nothing but a token, as over HTTP. Raises Unauthenticated or Forbidden."""
        if self.certificates or self.tokens is None:
            raise Forbidden(
                "operators must show a client certificate, and HTTP has no TLS here: use `headgate key` and "
                "`headgate block`"
            )
        return Operator(self.tokens.owner_of(header), peer)


AdminMethod = Callable[[bytes, Operator], Awaitable[bytes]]
"""A serialized request and who makes it, to a serialized answer."""


def admin_method(message: type[Request], serve: Callable[[Request, Operator], Awaitable[Message]]) -> AdminMethod:
    """Make a method of one from message to message."""

    async def call(payload: bytes, operator: Operator) -> bytes:
        answer = await serve(parsed(message, payload), operator)
        return answer.SerializeToString()

    return call
