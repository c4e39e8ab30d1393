"""Access to HTTP listeners: each serves some pages, to some callers.

Without an admin listener one address serves everything. With it, who asks for decisions
can't look, and who looks can't ask for decisions; health is on both. What gRPC demands of
its callers, HTTP demands for what gives as much away: decisions, and the rules. HTTP has
no TLS here, so where certificates are demanded and tokens are not, it does not serve these
at all. The admin listener is guarded by its address: its readers have no token to spend.

A browser on the operator's machine reaches these addresses too, for whatever page is open in it. So what gives
something away is refused to pages of other sites, and where no token is demanded, to requests for a host that is not
known here: that is a name which somebody else points at this address.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiohttp import web

from headgate.endpoint.tokens import AUTHORIZATION, NO_TOKEN, TokenFile
from headgate.errors import Forbidden, NotFound, Unauthenticated
from headgate.transport.http_hosts import NO_MORE_NAMES, HostNames

HEALTH: Final = frozenset(("/healthz", "/readyz", "/healthcheck"))
SCRAPED: Final = "/metrics"
_DECISIONS: Final = frozenset(("/json",))
_GUARDED_INSIGHT: Final = frozenset(
    ("/rules", "/rlconfig", "/regions", "/top", "/trend", "/nodes", "/bulletins", "/decisions", "/explain")
)
_INSIGHT: Final = frozenset(("/", SCRAPED, "/version")) | _GUARDED_INSIGHT
_METRICS: Final = frozenset((SCRAPED,))
_DEBUG: Final = frozenset(("/rlconfig",))
_GUARDED: Final = _DECISIONS | _GUARDED_INSIGHT
OPERATIONS: Final = frozenset(
    f"/headgate.v1.{method}"
    for method in (
        "Keys/Get",
        "Keys/Reset",
        "Keys/SetOverride",
        "Keys/RemoveOverride",
        "Blocks/Set",
        "Blocks/Remove",
    )
)
"""Operators' methods that the page uses, each with an operator's token: never where decisions are served."""
_CHECKED: Final = _GUARDED | OPERATIONS


class Surface(Enum):
    """Pages that one listener serves."""

    EVERYTHING = HEALTH | _DECISIONS | _INSIGHT
    CALLERS = HEALTH | _DECISIONS
    OPERATORS = HEALTH | _INSIGHT | OPERATIONS
    METRICS = HEALTH | _METRICS
    DEBUG = HEALTH | _DEBUG
    WORKER = EVERYTHING | OPERATIONS
    """Everything: a worker's is reached by its supervisor alone, which asks on behalf of everybody."""


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """Paths that one HTTP listener serves, and what a caller must show for them."""

    surface: Surface = Surface.EVERYTHING
    tokens: TokenFile | None = None
    certificates: bool = False
    """Callers of gRPC must show a certificate."""
    hosts: HostNames = NO_MORE_NAMES

    def routes(self, routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
        """Those to serve; of the others, whoever asks is told where they are."""
        return [
            route if route.path in self.surface.value else web.route("*", route.path, _elsewhere) for route in routes
        ]

    def check(self, path: str, headers: Mapping[str, str], *, over_network: bool = True) -> None:
        """Raises Unauthenticated or Forbidden."""
        if path not in _CHECKED:
            return
        if headers.get("Sec-Fetch-Site") == "cross-site":
            raise Forbidden(f"{path} is not for pages of other sites")
        by_address = self.surface in (Surface.OPERATORS, Surface.DEBUG) or path in OPERATIONS
        if over_network and (self.tokens is None or by_address):
            self.hosts.check(headers.get("Host", ""))
        if by_address:
            return
        if self.tokens is not None:
            if not self.tokens.allows(headers.get(AUTHORIZATION)):
                raise Unauthenticated(NO_TOKEN)
        elif self.certificates:
            raise Forbidden(
                f"callers must show a client certificate, and HTTP has no TLS here: {path} is served over HTTP "
                "only with bearer tokens (token_file); decisions are on gRPC"
            )


OPEN: Final = HttpAccess()
OF_WORKER: Final = HttpAccess(Surface.WORKER)


async def _elsewhere(request: web.Request) -> web.Response:
    listener = "http" if request.path in _DECISIONS else "admin"
    raise NotFound(f"{request.path} is not served here: ask the `{listener}` listener")
