"""Who may ask what, and where: the settings about callers, as the listeners take them."""

from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from headgate.config import Settings
from headgate.endpoint.tokens import TokenFile
from headgate.transport.callers import Callers, SanList
from headgate.transport.http_access import HttpAccess, Surface


def open_tokens(settings: Settings, logger: FilteringBoundLogger) -> TokenFile | None:
    """The token file, read; raises ConfigError naming what is wrong with it."""
    return TokenFile(str(settings.token_file), logger) if settings.token_file is not None else None


def grpc_callers(settings: Settings, tokens: TokenFile | None) -> Callers:
    return Callers(tokens, SanList(settings.tls_client_san) if settings.tls_client_san else None)


def http_listeners(settings: Settings, tokens: TokenFile | None) -> list[tuple[str, HttpAccess]]:
    """What listens for HTTP, and where: one for all, or one for callers and then one for operators."""
    callers = HttpAccess(Surface.EVERYTHING, tokens, settings.tls_client_ca is not None)
    if settings.admin is None:
        return [(settings.http, callers)]
    return [
        (settings.http, replace(callers, surface=Surface.CALLERS)),
        (settings.admin, HttpAccess(Surface.OPERATORS)),
    ]
