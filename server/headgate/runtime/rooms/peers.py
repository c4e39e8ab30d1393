"""The other regions, as configured, while they come and go."""

from collections.abc import Mapping

from headgate.exchange.instruments import register_peer_file
from headgate.runtime.access import open_peers
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms, Task
from headgate.telemetry.metrics import Metrics


class PeersRoom(Room):
    """Follows the file of peers, where there is one: every worker by itself."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        """Raises ConfigError for a file that can't be used."""
        super().__init__(context, rooms)
        self.list = open_peers(context.settings, context.logger)

    def register(self, metrics: Metrics) -> None:
        register_peer_file(metrics, self.list)

    def tasks(self) -> Mapping[str, Task]:
        return {"peers": self.list.watch} if self.list.is_followed else {}
