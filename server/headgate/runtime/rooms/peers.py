"""The other regions, as configured, while they come and go."""

from collections.abc import Mapping

from headgate.runtime.access import open_peers
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms, Task


class PeersRoom(Room):
    """Follows the file of peers, where there is one: every worker by itself."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        """Raises ConfigError for a file that can't be used."""
        super().__init__(context, rooms)
        self.list = open_peers(context.settings, context.logger)

    def tasks(self) -> Mapping[str, Task]:
        return {"peers": self.list.watch} if self.list.is_followed else {}
