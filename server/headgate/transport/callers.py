"""Who may ask: bearer tokens from a file, and the names in a client's certificate.

Both are allow-lists, and both are asked for a plain value: a header's text, the names of a
certificate. So the same lists serve every listener, whatever it hands over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headgate.endpoint.tls import names_of_auth_context
from headgate.endpoint.tokens import NO_TOKEN, TokenFile, header_of
from headgate.errors import Forbidden, Unauthenticated

NAME_NOT_ALLOWED = "the client certificate has no name (SAN) that is allowed here"


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
        """Say whether any of a certificate's names is in the list."""
        return any(map(self._allows, names))

    def _allows(self, name: str) -> bool:
        if "://" in name:
            return name in self._names or name.startswith(self._prefixes)
        name = name.lower()
        _, dot, rest = name.partition(".")
        return name in self._names or (dot + rest) in self._suffixes


@dataclass(frozen=True, slots=True)
class Callers:
    """The proof that callers of gRPC must show; without either list everybody may call."""

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


EVERYBODY: Final = Callers()
