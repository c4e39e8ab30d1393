"""The quota ledger of one region: all that it knows of quota keys, and all that it decides about them.

Whoever drives it (keeper.py) does the I/O, about once a second and in this order:

    for each key of `watched` and each other busy key, in one step of the region's origin: if no later ledger of this
        region has written there, write what `enforced` says, and read what is used and was offered, for `observe`
    write `deadlines` beside it: from then on every quota key of the region is at its floor, whoever lives; and what
        `unknown` says, for all keys that have nothing of their own
    `tick`, then save: each key of `table.unsaved` is written if the store has what it had `before`, and the nodes
        enforce no more than `told`: then `table.saved`, else `table.overtaken`. Then write `mark`, or delete it when
        it is empty
    for each peer: send `outgoing`; when it is acknowledged, `acknowledged`
    a peer's message: `incoming`, save as above, and only then acknowledge
    the store has lost something: `wiped`

Promises: slices as regions enforce them, with the gifts under way, never add up to more than the limit; no region is
ever under its floor; a key that nobody uses much costs no message and no field. No randomness, no clock. Several
ledgers of one region are harmless.
Relies on: what was saved is found again, or `mark` is gone too; regions' clocks agree to within 10 s; a message
and its relays take less than 20 s. (docs/quota.md)
"""

from typing import Final

from headgate.limiter.shares import even_share, floor_share, share_of
from headgate.quota.counts import LedgerCounts
from headgate.quota.filling import Filling
from headgate.quota.gifts import GiveRows, overlap_ms
from headgate.quota.key_plan import (
    Enforced,
    KeyPlan,
    RegionStanding,
    SliceDeadlines,
    Unknown,
    plan_of,
    settled_ms,
    standing_of,
)
from headgate.quota.key_state import KeyState, Observation, TakenBack, makes_sense
from headgate.quota.key_table import KeyTable
from headgate.quota.membership import Membership
from headgate.quota.message import QuotaEntry, QuotaMessage, set_tag
from headgate.quota.need import STEP, is_published, is_told_anew, need_of
from headgate.quota.slices import gifts

OBSERVED_MS: Final = 5_000
"""A share is given away only by an observation that is not older: what is used must not have been read long ago."""

NEED_MS: Final = 10_000
"""A key that was not observed for so long needs nothing."""


class QuotaLedger:
    """One region's quota keys. Regions go by name outside, and by their place among the sorted names within."""

    def __init__(
        self,
        region: str,
        regions: tuple[str, ...],
        *,
        run: int,
        now_ms: int,
        mark: bytes = b"",
        counts: LedgerCounts | None = None,
    ) -> None:
        """`run` is higher than at any earlier start of this region; `mark` is what the store has of `mark`.

        `counts` go on where those of an earlier ledger ended.
        """
        self.counts = counts or LedgerCounts()
        self.names: Final = tuple(sorted(regions))
        self.tag: Final = set_tag(self.names)
        self._me: Final = self.names.index(region)
        self._members = Membership(self._me, len(self.names), run, now_ms)
        self.table: Final = KeyTable(self._me, len(self.names), self.tag, self._members.peers, self.counts)
        self._keys: Final = self.table.states
        self._busy: dict[bytes, None] = {}
        self._filling = Filling(self._me, len(self.names), self.tag, mark, run)
        if self._filling.memory:
            self._members.remember(self._filling.memory, now_ms)
        self._peers_filled: set[int] = set()
        self._standing: RegionStanding | None = None
        self._standing_at_ms = 0

    # The store

    @property
    def filled(self) -> bool:
        """True once this region knows all that it has ever given. Until then every key is at its floor."""
        return self._filling.filled

    @property
    def mark(self) -> bytes:
        """The store's sign that nothing was lost, which the next ledger of this region begins with:
        without it, it would be at its floor until the others have answered. Empty while something may be missing.
        To be written every second."""
        return self._filling.mark(self._members.memory())

    def wiped(self, now_ms: int) -> None:
        """The store has lost what was saved, or part of it. What is known here is saved again, but not relied on."""
        self._filling.lose(now_ms)
        self._standing = None
        self.table.lost()

    # The region's own traffic

    def enforced(self, key: bytes, window_ms: int, now_ms: int) -> Enforced:
        """Return the shares that this region enforces now; valid until the `deadlines`."""
        self._members.pass_time(now_ms)
        state = self._keys.get(key)
        if state is None:
            at_floor = now_ms < self.table.unknown_at_floor_until_ms
            unknown = KeyState(GiveRows(window_ms, len(self.names)))
            return Enforced(self.floor, self.floor) if at_floor else self._plan(unknown, now_ms).enforced
        enforced = self._plan(state, now_ms).enforced
        state.told = max(state.told, enforced.share)
        return enforced

    def deadlines(self, now_ms: int) -> SliceDeadlines:
        """Until when `enforced` holds for all keys if nothing more is heard."""
        until_ms = self._members.connected_until_ms()
        if not self._stand(now_ms).lost:
            return SliceDeadlines(until_ms, until_ms)
        return SliceDeadlines(min(until_ms, self._members.statements_until_ms(now_ms)), until_ms)

    def unknown(self, now_ms: int) -> Unknown:
        """Return the share that this region enforces of keys that nothing is known of."""
        self._members.pass_time(now_ms)
        standing = self._stand(now_ms)
        if not standing.goes_by_slice or now_ms < self.table.unknown_at_floor_until_ms:
            return Unknown(self.floor, 0)
        return Unknown(even_share(len(self.names)), settled_ms(standing, self._members))

    @property
    def floor(self) -> int:
        """Share that every key has at least, in millionths."""
        return floor_share(len(self.names))

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def known(self) -> list[bytes]:
        """All keys that something is known of."""
        return list(self._keys)

    def slices(self, key: bytes, now_ms: int) -> dict[str, int]:
        """Return each region's slice of a key as gifts make it, as far as is known here."""
        return dict(zip(self.names, self._keys[key].rows.slices(now_ms), strict=True))

    def goes_by_slice(self, now_ms: int) -> bool:
        """Return True while this region has its slices, and not its floors."""
        return self._stand(now_ms).goes_by_slice

    def watched(self) -> list[bytes]:
        """The keys that are moving, here or elsewhere: each is to be observed every second, used or not."""
        return list(self._busy)

    def observe(
        self, key: bytes, *, limit: int, window_ms: int, enforced: int, used: int, offered: int, now_ms: int
    ) -> None:
        """Take in what the origin says: used and offered as costs, read when `Enforced.share` was in force there.

        Used is by the algorithm's own measure; offered per window, as `need.Offered` measures it.
        """
        need, used_share = need_of(offered, limit), share_of(used, limit)
        state = self._keys.get(key)
        if state is None:
            if not is_published(need, used_share, even_share(len(self.names)), before=False):
                return
            state = self.table.add(key, window_ms, now_ms)
            if state is None:
                return
        state.observed = Observation(now_ms, used_share, need)
        state.told = enforced
        self._busy[key] = None

    # Every second

    def tick(self, now_ms: int) -> None:
        """Decide what is published and given away. What changed is in `table.unsaved` then."""
        self._members.pass_time(now_ms)
        self._standing = None
        lost = self._members.lost(now_ms)
        self._filling.look([peer for peer in self._members.peers if peer not in lost], now_ms)
        for key in list(self._busy):
            self._decide(key, self._keys[key], now_ms)
        self.table.forget(self._busy, now_ms)

    def _decide(self, key: bytes, state: KeyState, now_ms: int) -> None:
        standing = self._stand(now_ms)
        plan = self._plan(state, now_ms)
        if self._publish(key, state, plan, now_ms):
            plan = self._plan(state, now_ms)
        if standing.goes_by_slice and now_ms >= state.blind_until_ms:
            self._move(key, state, plan, now_ms)
        seen = state.observed
        if state.is_quiet(standing.heard) and (seen is None or now_ms - seen.at_ms > NEED_MS):
            del self._busy[key]

    def _publish(self, key: bytes, state: KeyState, plan: KeyPlan, now_ms: int) -> bool:
        """Set the need and usage that others are told; return True if there is something new to tell."""
        seen = state.observed
        need, used = (seen.need, seen.used) if seen and now_ms - seen.at_ms <= NEED_MS else (0, 0)
        if not is_published(need, used, plan.slice, before=state.need > 0):
            need = 0
        if plan.taken:
            state.over_until_ms = now_ms + overlap_ms(state.rows.window_ms)
        over_until_ms = max(state.over_until_ms, self._filling.filled_ms + overlap_ms(state.rows.window_ms))
        over = max(0, used - plan.own - plan.taken) if now_ms < over_until_ms else 0
        over = -(-over // STEP) * STEP  # never told as less than it is
        if over == state.over and not is_told_anew(need, state.need):
            return False
        state.need, state.over = need, over
        self.table.announce(key, state)
        return True

    def _move(self, key: bytes, state: KeyState, plan: KeyPlan, now_ms: int) -> None:
        """Give, and carry slices over into an epoch that begins. All of it is taken back if it can't be saved."""
        given = self._gifts(state, plan, now_ms)
        if not given and not state.rows.is_turning(now_ms):
            return
        before = state.rows.given(self._me)
        for receiver, share in given:
            state.rows.give(self._me, receiver, share, now_ms)
            self.counts.gifts += 1
            self.counts.given += share
        state.rows.carry_over(self._me, now_ms)
        after = state.rows.given(self._me)
        if after != before:
            state.taken_back = TakenBack(state.taken_back.before if state.taken_back else before, after)
            self.table.changed(key, state)

    def _gifts(self, state: KeyState, plan: KeyPlan, now_ms: int) -> list[tuple[int, int]]:
        seen = state.observed
        if seen is None or now_ms - seen.at_ms > OBSERVED_MS:
            return []
        return gifts(plan.own, max(plan.wanted, seen.used, state.told), plan.lacks)

    # Other regions

    def outgoing(self, peer: str, now_ms: int) -> QuotaMessage:
        """The next message to a peer. One is under way at a time: what is not acknowledged is in the next one again."""
        number = self.names.index(peer)
        self._members.pass_time(now_ms)
        keys: list[bytes] = []
        whole = False
        if self._members.takes_part(now_ms):  # else it neither sends nor relays gifts: its slice may be shared out
            keys, whole = self.table.pending.page(number, lambda key: self._keys[key].is_saved)
        mark = self._members.send(number, now_ms)
        self.table.pending.sent(number, mark.number, {key: self._keys[key].version for key in keys})
        return QuotaMessage(
            tag=self.tag,
            mark=mark,
            echo=self._members.echo(number),
            stores=tuple(self._filling.stores),
            filled=self._filling.filled,
            answers=self._filling.told_store(number),
            whole=whole,
            changed_ago_ms=self._filling.changed_ago_ms(now_ms),
            silent_ms=tuple(self._members.silent(now_ms).items()),
            entries=tuple(self._entry(key) for key in keys),
        )

    def acknowledged(self, peer: str, number: int, now_ms: int) -> None:
        """The peer has saved what the message with this number said."""
        region = self.names.index(peer)
        self._standing = None
        self._members.acknowledge(region, number, now_ms)
        self.table.pending.acknowledged(
            region, number, lambda key: self._keys[key].version if key in self._keys else -1
        )

    def incoming(self, peer: str, message: QuotaMessage, now_ms: int) -> None:
        """A peer's message. To be acknowledged when what `table.unsaved` gives now is saved."""
        region = self.names.index(peer)
        self._members.pass_time(now_ms)
        self._standing = None
        newest = self._members.hear(region, message.mark, now_ms)
        if message.tag != self.tag or len(message.stores) != len(self.names):
            self.counts.other_set += 1
            self._members.forget_statement(region)
            self._peers_filled.discard(region)
            return
        if self._filling.is_outdated(region, message):
            self.counts.from_lost_store += 1
            return
        if self._filling.must_tell_all(region, message):
            self.table.pending.add_all(region, self._keys)
        for entry in message.entries:
            self._take_in(region, entry, now_ms, newest=newest)
        if newest:
            self._note_standing(region, message, now_ms)

    def _note_standing(self, region: int, message: QuotaMessage, now_ms: int) -> None:
        silent_ms = {silent: ms for silent, ms in message.silent_ms if silent != region}
        complete = message.whole and message.filled
        self._members.take_statement(region, message.echo, silent_ms, complete=complete)
        if message.filled:
            self._peers_filled.add(region)
        else:
            self._peers_filled.discard(region)
        self._filling.take_answer(region, message, now_ms)

    def _take_in(self, peer: int, entry: QuotaEntry, now_ms: int, *, newest: bool) -> None:
        if not makes_sense(entry, len(self.names)):
            self.counts.entries_refused += 1
            return
        state = self.table.add(entry.key, entry.window_ms, now_ms)
        if state is None:
            return
        if state.rows.window_ms != entry.window_ms:
            self.counts.entries_refused += 1
            return
        self._merge(peer, entry, state, now_ms)
        if newest:
            state.needs[peer], state.overs[peer] = entry.need, entry.over
            if entry.need or entry.over:
                self._busy[entry.key] = None

    def _merge(self, peer: int, entry: QuotaEntry, state: KeyState, now_ms: int) -> None:
        raised = state.rows.merge_all(entry.rows, now_ms)
        if self._me in raised:  # it was given, and forgotten: more than the slice may be in use
            state.over_until_ms = now_ms + overlap_ms(entry.window_ms)
        if raised:
            said_all = set(entry.rows) >= set(state.rows.flat())
            self.table.changed(entry.key, state, but=peer if said_all else None)

    def _entry(self, key: bytes) -> QuotaEntry:
        state = self._keys[key]
        return QuotaEntry(key, state.rows.window_ms, state.need, state.over, tuple(state.rows.flat()))

    # Within

    def _plan(self, state: KeyState, now_ms: int) -> KeyPlan:
        return plan_of(state, self._stand(now_ms), self._members, now_ms)

    def _stand(self, now_ms: int) -> RegionStanding:
        if self._standing is None or self._standing_at_ms != now_ms:
            self._standing = standing_of(self._members, self._filling, self._peers_filled, now_ms)
            self._standing_at_ms = now_ms
        return self._standing
