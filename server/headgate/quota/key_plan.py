"""A region's plan for one key at one time: its share, what that should be, and who lacks how much.

Pure: reads what the ledger knows, changes nothing.
"""

from typing import NamedTuple

from headgate.limiter.shares import floor_share
from headgate.quota.filling import NEVER_MS, Filling
from headgate.quota.gifts import OVERLAP_MS, OVERLAP_WINDOWS, overlap_ms
from headgate.quota.key_state import KeyState
from headgate.quota.membership import RETURNING_MS, Membership
from headgate.quota.slices import enforced_share, possible_slice, share_maybe_taken, taken_share, wanted_slices


class RegionStanding(NamedTuple):
    """A region's standing among the others at one time, the same for all keys."""

    goes_by_slice: bool
    """Else it keeps to its floor: it is cut off, has just come back, or does not know yet what it has given."""
    since_ms: int
    """Since when it does, if it was lost before or had lost its store: others may use some of its slice."""
    changed_ms: int
    """Time of the last change of the set of regions: for two windows and 30 s every key is at its floor."""
    lost: dict[int, int]
    """Regions whose slices are shared out, and for how long they were silent."""
    heard: frozenset[int]
    """Peers whose published needs still stand."""
    receivers: frozenset[int]
    """Peers that can be given to."""


def standing_of(members: Membership, filling: Filling, peers_filled: set[int], now_ms: int) -> RegionStanding:
    heard = frozenset(peer for peer in members.peers if members.is_heard(peer, now_ms))
    connected = frozenset(peer for peer in heard if members.is_connected(peer, now_ms))
    return RegionStanding(
        goes_by_slice=filling.filled and members.takes_part(now_ms),
        since_ms=max(filling.filled_ms, members.returned_ms() if members.regions > 2 else NEVER_MS),
        changed_ms=filling.latest_change_ms(),
        lost=members.taken_from(now_ms),
        heard=heard,
        receivers=connected & peers_filled,
    )


class Enforced(NamedTuple):
    """Shares of a key that a region enforces, in millionths; until the `SliceDeadlines` if nothing more is heard."""

    share: int
    lasting: int
    """The share without what it has of lost regions."""


class SliceDeadlines(NamedTuple):
    """For all keys of a region. Up to the first one it enforces `share`, up to the second `lasting`, then its floor."""

    taken_until_ms: int
    until_ms: int


class Unknown(NamedTuple):
    """Share that a region enforces of keys that nothing is known of."""

    share: int
    settled_ms: int
    """Two windows of the key after this; until then its floor."""


def settled_ms(standing: RegionStanding, members: Membership) -> int:
    """From when on, less two windows, nobody uses any more of an unknown key than its even slice: the set of
    regions has not changed lately, and whoever took from this region while it was lost has said what that was."""
    changed_ms = standing.changed_ms + OVERLAP_MS
    if all(members.has_answered(peer, standing.since_ms) for peer in members.peers):
        return max(0, changed_ms)
    return max(0, changed_ms, standing.since_ms + RETURNING_MS)


class KeyPlan(NamedTuple):
    """One key of one region."""

    slice: int
    """The region's slice, as gifts make it."""
    own: int
    """Part of that which it may enforce: all, less what others may still use after it was lost; or its floor."""
    taken: int
    """Share that it has of lost regions' slices, as long as they are lost."""
    wanted: int
    lacks: list[int]
    """Shares that those lack who can be given to, by region."""

    @property
    def enforced(self) -> Enforced:
        lacking = sum(self.lacks)
        lasting = enforced_share(self.own, self.wanted, lacking)
        return Enforced(enforced_share(self.own + self.taken, self.wanted, lacking), lasting)


def plan_of(state: KeyState, standing: RegionStanding, members: Membership, now_ms: int) -> KeyPlan:
    regions, me = members.regions, members.me
    floor = floor_share(regions)
    slices = state.rows.slices(now_ms)
    if not standing.goes_by_slice or now_ms < max(
        state.blind_until_ms, standing.changed_ms + overlap_ms(state.rows.window_ms)
    ):
        return KeyPlan(slices[me], floor, 0, floor, [0] * regions)
    window_ms = state.rows.window_ms
    own = max(floor, possible_slice(slices, me) - _in_use_by_others(slices[me], state, standing, members, now_ms))
    taken = sum(taken_share(possible_slice(slices, lost), ms, window_ms, regions) for lost, ms in standing.lost.items())
    needs = [state.needs.get(region, 0) if region in standing.heard else 0 for region in range(regions)]
    needs[me] = state.need
    wanted = wanted_slices(tuple(needs))
    # Before the first observation the own need is not known, and nothing is kept back for others.
    receivers = standing.receivers if state.observed else ()
    lacks = [max(0, wanted[region] - slices[region] - taken) if region in receivers else 0 for region in range(regions)]
    return KeyPlan(slices[me], own, taken, wanted[me], lacks)


def _in_use_by_others(
    own_slice: int, state: KeyState, standing: RegionStanding, members: Membership, now_ms: int
) -> int:
    """Add up what others say they use above their slices, until all of it is gone: they took it while this region was
    lost, or had it before all had forgotten who gave what. As long as one has not said so, all that it may be."""
    window_ms = state.rows.window_ms
    back_ms = now_ms - standing.since_ms
    if back_ms >= RETURNING_MS + OVERLAP_WINDOWS * window_ms:
        return 0
    return sum(
        state.overs.get(peer, 0)
        if members.has_answered(peer, standing.since_ms)
        else share_maybe_taken(own_slice, back_ms, window_ms, members.regions)
        for peer in members.peers
    )
