"""`headgate.v1.Process`: operators change the log level of a running process, to any level and back by itself."""

import asyncio
from collections.abc import Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest
from headgate.telemetry.logs import LEVELS, Logs
from headgate.v1 import process_pb2 as pb

SERVICE: Final = "headgate.v1.Process"
LONGEST_MS: Final = 86_400_000
"""A level that shall hold for longer is a setting."""


class LogLevelService:
    """Changes the level that `logs` writes from, and goes back to the setting's when the time is over."""

    def __init__(self, logs: Logs, node: str, logger: FilteringBoundLogger) -> None:
        self._logs = logs
        self._node = node
        self._logger = logger
        self._return: asyncio.TimerHandle | None = None
        """Timer that brings the level of the settings back."""

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {f"/{SERVICE}/SetLogLevel": admin_method(pb.SetLogLevelRequest, self.set_level)}

    async def set_level(self, request: pb.SetLogLevelRequest, operator: Operator) -> pb.SetLogLevelResponse:
        """Log from another level on."""
        if request.level not in LEVELS:
            raise BadRequest(f"level: one of {', '.join(LEVELS)}, found {request.level!r}")
        if not 0 <= request.for_ms <= LONGEST_MS:
            raise BadRequest(f"for_ms: from 0 to {LONGEST_MS} (a day); what holds for longer is a setting")
        self.close()
        before = self._logs.level
        self._logger.warning("log_level_asked_for", who=operator.who, peer=operator.peer, log_level=request.level)
        self._logs.set_level(request.level)
        if request.for_ms:
            loop = asyncio.get_running_loop()
            self._return = loop.call_later(request.for_ms / 1000, self._logs.set_level, self._logs.chosen)
        return pb.SetLogLevelResponse(node=self._node, level=request.level, before=before)

    def close(self) -> None:
        """Forget a return that is under way."""
        if self._return is not None:
            self._return.cancel()
            self._return = None
