"""Bugs to plant in the quota engine, each the simpler rule that somebody might write.

Each takes a MonkeyPatch and is found by the history named beside it (test_planted_bugs.py), which is green without it.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest
from headgate.quota import filling, gifts, key_plan, membership, pending, slices
from headgate.quota.gifts import GiveRows
from headgate.quota.key_plan import Enforced, KeyPlan, SliceDeadlines
from headgate.quota.key_state import KeyState
from headgate.quota.ledger import QuotaLedger
from headgate.quota.membership import CONNECTED_MS, FOR_EVER_MS, Membership

Patch = pytest.MonkeyPatch


def recomputed_by_everyone(patch: Patch) -> None:
    """A region enforces the slice that it reckons from the needs it has heard, and nobody gives anything."""
    patch.setattr(KeyPlan, "enforced", property(lambda self: Enforced(self.wanted, self.wanted)))


def giving_slice_less_usage(patch: Patch) -> None:
    """A region goes on by its slice until it has given: under overload its usage never falls."""
    patch.setattr(key_plan, "enforced_share", lambda own, wanted, lacking: own)


def giving_before_the_nodes_know(patch: Patch) -> None:
    """What is given is reckoned from usage alone, while nodes still go by the larger share."""
    reckon = QuotaLedger._gifts

    def careless(self: QuotaLedger, state: KeyState, found: KeyPlan, now_ms: int) -> list[tuple[int, int]]:
        told, state.told = state.told, 0
        given = reckon(self, state, found, now_ms)
        state.told = told
        return given

    patch.setattr(QuotaLedger, "_gifts", careless)


def giving_what_is_in_use(patch: Patch) -> None:
    """A region gives all that is above its wanted slice at once, though it was used in this window."""
    reckon = QuotaLedger._gifts

    def careless(self: QuotaLedger, state: KeyState, found: KeyPlan, now_ms: int) -> list[tuple[int, int]]:
        if state.observed is not None:
            state.observed = state.observed._replace(used=0)
        return reckon(self, state, found, now_ms)

    patch.setattr(QuotaLedger, "_gifts", careless)


def no_filled_mark(patch: Patch) -> None:
    """A store that was lost counts as one in which nothing was ever given."""
    start = filling.Filling.__init__

    def careless(self: filling.Filling, *args: Any) -> None:
        start(self, *args)
        self.filled = True

    patch.setattr(filling.Filling, "__init__", careless)


def unheard_is_lost(patch: Patch) -> None:
    """A region that one other has not heard for 30 s is lost to that one, whatever the rest say."""
    patch.setattr(Membership, "taken_from", Membership.silent)


def heard_is_connected(patch: Patch) -> None:
    """A region that hears the others takes itself for connected, though nobody may hear it."""

    def is_connected(self: Membership, peer: int, now_ms: int) -> bool:
        return self.is_heard(peer, now_ms)

    def until_ms(self: Membership) -> int:
        needed = (self.regions + 1) // 2 - 1
        latest = sorted(self._heard_ms.values(), reverse=True)
        return latest[needed - 1] + CONNECTED_MS if needed else FOR_EVER_MS

    patch.setattr(Membership, "is_connected", is_connected)
    patch.setattr(Membership, "connected_until_ms", until_ms)


def written_by_the_receiver(patch: Patch) -> None:
    """A region that lacks takes from whoever has too much, and writes that down for it."""

    def pull(self: QuotaLedger, key: bytes, state: KeyState, found: KeyPlan, now_ms: int) -> None:
        lack = found.wanted - found.own
        for giver, share in enumerate(state.rows.slices(now_ms)):
            if giver != self._me and lack > 20_000 and share > 200_000:
                state.rows.give(giver, self._me, lack, now_ms)
                self.table.changed(key, state)
                return

    patch.setattr(QuotaLedger, "_move", pull)


def no_overlap_of_epochs(patch: Patch) -> None:
    """From its first millisecond on only the new epoch counts."""

    def newest(self: GiveRows, now_ms: int) -> tuple[int, ...]:
        return (now_ms // gifts.epoch_ms(self.window_ms),)

    patch.setattr(GiveRows, "counting", newest)
    nothing_is_carried_over(patch)


def nothing_is_carried_over(patch: Patch) -> None:
    """A new epoch begins with even slices, and the smaller of both counts."""
    patch.setattr(GiveRows, "carry_over", lambda self, giver, now_ms: None)


def gifts_of_the_old_epoch_alone(patch: Patch) -> None:
    """While two epochs count a gift is written in the old one only: it is taken back when that one ends."""

    def give(self: GiveRows, giver: int, receiver: int, share: int, now_ms: int) -> None:
        self._rows(self.counting(now_ms)[0]).give(giver, receiver, share)

    patch.setattr(GiveRows, "give", give)
    nothing_is_carried_over(patch)


def back_at_once(patch: Patch) -> None:
    """A region that is connected again goes by its slice at once, while others still take from it."""
    patch.setattr(membership, "RETURNING_MS", 0)
    nothing_left_to_the_others(patch)


def nothing_left_to_the_others(patch: Patch) -> None:
    """A returning region does not ask what the others use above their slices."""
    patch.setattr(key_plan, "_in_use_by_others", lambda *figures: 0)


def lost_uses_nothing(patch: Patch) -> None:
    """What a lost region had is shared out at once, though it was used in this window."""
    patch.setattr(slices, "still_in_use", lambda share, ended_ms, window_ms: 0)


def statements_never_age(patch: Patch) -> None:
    """What a region once said of another counts until it says something else."""
    patch.setattr(membership, "STATEMENT_MS", 1_000_000)


def no_deadline(patch: Patch) -> None:
    """Nodes go on by the share that they were told last, also when no ledger is there to tell them another."""
    patch.setattr(QuotaLedger, "deadlines", lambda self, now_ms: SliceDeadlines(FOR_EVER_MS, FOR_EVER_MS))


def sent_before_it_is_saved(patch: Patch) -> None:
    """A gift is told before the giver's store has it: the giver forgets it and grows back."""
    page = pending.PendingKeys.page

    def careless(self: pending.PendingKeys, peer: int, is_ready: Callable[[bytes], bool]) -> tuple[list[bytes], bool]:
        return page(self, peer, lambda key: True)

    patch.setattr(pending.PendingKeys, "page", careless)


def a_new_set_at_once(patch: Patch) -> None:
    """After a change of the set of regions slices count as soon as all have answered, though more is in use."""
    patch.setattr(filling.Filling, "latest_change_ms", lambda self: 0)


def cut_off_and_still_sending(patch: Patch) -> None:
    """A region at its floor sends what it gave, though its slice may be shared out."""
    outgoing = QuotaLedger.outgoing

    def careless(self: QuotaLedger, peer: str, now_ms: int) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(Membership, "takes_part", lambda members, now_ms: True)
            return outgoing(self, peer, now_ms)

    patch.setattr(QuotaLedger, "outgoing", careless)


def own_row_is_not_told(patch: Patch) -> None:
    """A region is not told what it gave: it must know that itself."""
    take_in = QuotaLedger._take_in

    def careless(self: QuotaLedger, peer: int, entry: Any, now_ms: int, *, newest: bool) -> None:
        rows = tuple(row for row in entry.rows if row[1] != self._me)
        take_in(self, peer, entry._replace(rows=rows), now_ms, newest=newest)

    patch.setattr(QuotaLedger, "_take_in", careless)


def no_floor(patch: Patch) -> None:
    """Slices are in proportion to needs, whatever is left for the quiet ones."""

    def proportional(needs: tuple[int, ...]) -> list[int]:
        return [1_000_000 * share // max(1, sum(needs)) for share in needs]

    patch.setattr(key_plan, "wanted_slices", proportional)


ALL: Final = [
    value for value in list(globals().values()) if callable(value) and getattr(value, "__module__", None) == __name__
]
