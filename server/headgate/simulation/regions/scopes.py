"""Rules of a simulated region, as far as other regions have to do with them: those of the history's keys."""

from headgate.simulation.regions.history import RegionsHistory


class HistoryScopes:
    """Says which of a history's keys all regions count together. Implements the exchange's `KeyScopes`."""

    def __init__(self, history: RegionsHistory) -> None:
        self._windows_ms = {key.name: key.limit.window_ms for key in history.keys if key.limit.publish_at}

    version: object = None
    """The rules of a history never change."""

    def is_global(self, key: bytes, place: bytes, window_ms: int) -> bool:
        return place == key and self._windows_ms.get(key) == window_ms
