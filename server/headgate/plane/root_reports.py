"""Reports of roots to each other, through the store that they share: who follows each of them, and how far."""

from collections.abc import Sequence
from typing import Any, Final

from headgate.plane.codec import MOST_FOLLOWERS, decode_from_follower, encode_from_follower
from headgate.plane.entry import FollowerState, Report
from headgate.plane.mirrored import SharedDatabase

SILENT_S: Final = 15
"""Seconds after which a root that tells nothing is taken for gone, and its followers with it."""
MOST_ROOTS: Final = 20
"""Roots whose reports are read."""

_TELL: Final = (
    "INSERT INTO roots (root, told, report) VALUES (?, now(), ?)"
    " ON CONFLICT (root) DO UPDATE SET told = now(), report = excluded.report"
)
_FORGET: Final = f"DELETE FROM roots WHERE told < now() - interval '{4 * SILENT_S} s'"  # noqa: S608 - a number of ours
_HEAR: Final = (
    f"SELECT report FROM roots WHERE root <> ? AND told > now() - interval '{SILENT_S} s'"  # noqa: S608 - numbers
    f" ORDER BY told LIMIT {MOST_ROOTS}"
)


class RootReports:
    """One root's side of them."""

    def __init__(self, store: SharedDatabase, root: str) -> None:
        self._store = store
        self._root = root

    def exchange(self, mine: Sequence[FollowerState]) -> list[FollowerState]:
        """Tell who follows this root; return who follows the others. Of two who tell of one name the later counts."""
        report = encode_from_follower(Report(tuple(mine)))
        others: dict[str, FollowerState] = {}
        with self._store.beside() as connection:
            connection.execute(_TELL, (self._root, report))
            connection.execute(_FORGET)
            for (data,) in connection.execute(_HEAR, (self._root,)):
                others.update((state.name, state) for state in _states(data))
        return list(others.values())[:MOST_FOLLOWERS]


def _states(data: Any) -> Sequence[FollowerState]:
    said = decode_from_follower(bytes(data))
    return said.followers if isinstance(said, Report) else ()
