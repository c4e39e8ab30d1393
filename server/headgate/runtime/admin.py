"""The admin side over gRPC, as a process has it: who may use it, and what is served there."""

from collections.abc import Mapping
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from headgate.config import Settings
from headgate.endpoint.admins import AdminTokens
from headgate.runtime.access import admin_tls, open_admins
from headgate.transport.admin import AdminServer, Method


@dataclass(frozen=True, slots=True)
class AdminSide:
    """A listener for operators, and the token file that it goes by, if it does."""

    server: AdminServer
    tokens: AdminTokens | None


def open_admin_side(
    settings: Settings, methods: Mapping[str, Method], logger: FilteringBoundLogger
) -> AdminSide | None:
    """None where nobody may change anything. Raises ConfigError naming what is wrong with the token file."""
    if settings.admin_grpc is None:
        return None
    admins = open_admins(settings, logger)
    server = AdminServer(
        settings.admin_grpc,
        methods,
        admins,
        logger,
        tls=admin_tls(settings, logger),
        socket_mode=int(settings.socket_mode, 8),
    )
    return AdminSide(server, admins.tokens)
