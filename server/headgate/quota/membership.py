"""Membership: what one region knows of the others. Who hears it, whom it hears, who is lost.

Three times follow each other when a region is cut off, each measured by one clock alone:

    20 s after the last message that half of all regions acknowledged, it is at its floor, and gives nothing;
    30 s after they last heard it, more than half of all regions say so, and it is lost: they share its slice out;
    10 s after it is connected to half of all regions again, it goes by its slice again.

So a lost region is at its floor before anybody takes from its slice, and whoever took has stopped before it
comes back. "Acknowledged", not "heard", decides whether a region is connected: one that hears the others, and is not
heard by them, is lost to them. Two regions never share out: neither is more than half.

Promises: no figure here depends on how the clocks of two regions differ. A statement's age is known by its echo: it
was made after the peer had this region's message with that number.
Relies on: the time that is passed in passes as real time does. When it goes back, everything begins anew, at the floor.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

import msgpack

CONNECTED_MS: Final = 20_000
"""A peer is connected while it has acknowledged something that was sent in this time."""

SILENT_MS: Final = 30_000
"""A region that was not heard for so long is stated to be silent. By then it has been at its floor for 10 s."""

STATEMENT_MS: Final = 5_000
"""A statement about others counts for so long after the message that its sender had heard by then."""

RETURNING_MS: Final = 10_000
"""A region stays at its floor for so long after it is connected again: statements about it have expired by then."""

REMEMBERED_MESSAGES: Final = 64
"""Messages to one peer whose time of sending is known: about a minute's. What is older says nothing."""

FOR_EVER_MS: Final = 1 << 62


class Mark(NamedTuple):
    """Which message: of which run of a region's ledger, and its number there. Later ones compare higher."""

    run: int
    number: int


NOTHING_HEARD: Final = Mark(0, 0)


class Statement(NamedTuple):
    """Statement of a peer about the others, in its last message."""

    as_of_ms: int
    """Time at which this region sent the message that the peer had heard by then."""
    silent_ms: dict[int, int]
    """Regions that the peer had not heard for 30 s and more, and for how long."""
    complete: bool
    """Its gifts are all known here: it had lost nothing and held nothing back."""


class Membership:
    """One region's view of all regions. They are numbers, in the order of their names; `me` is its own."""

    def __init__(self, me: int, regions: int, run: int, now_ms: int) -> None:
        self.me = me
        self.regions = regions
        self.peers: Final = tuple(region for region in range(regions) if region != me)
        self._run = run
        self._number = 0
        self._latest: dict[int, tuple[Mark, int]] = {}
        """Peer to its newest message, and when that was heard."""
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._sent: dict[int, OrderedDict[int, int]] = {peer: OrderedDict() for peer in self.peers}
        self._acknowledged_ms: dict[int, int] = {}
        self._heard_ms = dict.fromkeys(self.peers, now_ms)
        self._statements: dict[int, Statement] = {}
        self._returned_ms = now_ms

    def memory(self) -> bytes:
        """Pack what the next ledger of the same region goes on with. Not when others were last heard: until
        it listens nobody can be heard."""
        marks = {peer: tuple(mark) for peer, (mark, _) in self._latest.items()}
        packed: bytes = msgpack.packb([self._returned_ms, self._acknowledged_ms, marks])
        return packed

    def remember(self, memory: bytes, now_ms: int) -> None:
        """Go on with what an earlier one knew; with nothing, if it knew something that is yet to come."""
        returned_ms, acknowledged_ms, marks = msgpack.unpackb(memory, strict_map_key=False)
        if max(returned_ms, *acknowledged_ms.values()) <= now_ms:
            self._returned_ms = returned_ms
            self._acknowledged_ms.update(acknowledged_ms)
        self._latest.update({peer: (Mark(*mark), now_ms) for peer, mark in marks.items()})

    def pass_time(self, now_ms: int) -> None:
        """The clock was set back: how old anything is can't be known any more."""
        if now_ms < self._now_ms:
            self._begin(now_ms)
        self._now_ms = now_ms

    # What is sent, acknowledged and heard

    def send(self, peer: int, now_ms: int) -> Mark:
        """The mark of the message that is sent now."""
        self._number += 1
        sent = self._sent[peer]
        sent[self._number] = now_ms
        if len(sent) > REMEMBERED_MESSAGES:
            sent.popitem(last=False)
        return Mark(self._run, self._number)

    def acknowledge(self, peer: int, number: int, now_ms: int) -> None:
        """The peer has taken in the message with this number."""
        sent_ms = self._sent[peer].get(number)
        if sent_ms is None or sent_ms <= self._acknowledged_ms.get(peer, -1):
            return
        was_until_ms = self.connected_until_ms()
        self._acknowledged_ms[peer] = sent_ms
        if was_until_ms < now_ms <= self.connected_until_ms():
            self._returned_ms = now_ms

    def hear(self, peer: int, mark: Mark, now_ms: int) -> bool:
        """Note a message; return True if what it says of now is the newest that there is of that peer.

        Whatever is acknowledged counts as heard, also what comes late: its sender takes itself for connected. Of two
        runs the later one speaks for the region, until it has been quiet for a while.
        """
        self._heard_ms[peer] = now_ms
        latest, latest_ms = self._latest.get(peer, (NOTHING_HEARD, now_ms))
        is_left = mark.run < latest.run and now_ms - latest_ms > STATEMENT_MS
        if mark <= latest and not is_left:
            return False
        self._latest[peer] = mark, now_ms
        return True

    def take_statement(self, peer: int, echo: Mark, silent_ms: dict[int, int], *, complete: bool) -> None:
        as_of_ms = self._sent[peer].get(echo.number) if echo.run == self._run else None
        if as_of_ms is not None:
            self._statements[peer] = Statement(as_of_ms, silent_ms, complete)

    def forget_statement(self, peer: int) -> None:
        """The peer speaks of another set of regions."""
        self._statements.pop(peer, None)

    def echo(self, peer: int) -> Mark:
        """The newest message of that peer, to be told in the next one to it."""
        return self._latest.get(peer, (NOTHING_HEARD, 0))[0]

    # What follows

    def is_heard(self, peer: int, now_ms: int) -> bool:
        """Return True if what the peer last said of its needs still stands."""
        return now_ms - self._heard_ms[peer] <= CONNECTED_MS

    def is_connected(self, peer: int, now_ms: int) -> bool:
        sent_ms = self._acknowledged_ms.get(peer)
        return sent_ms is not None and now_ms - sent_ms <= CONNECTED_MS

    def connected_until_ms(self) -> int:
        """Until when this region is connected to half of all, itself included, if nothing more is acknowledged."""
        needed = (self.regions + 1) // 2 - 1
        if not needed:
            return FOR_EVER_MS
        latest = sorted(self._acknowledged_ms.values(), reverse=True)
        return latest[needed - 1] + CONNECTED_MS if len(latest) >= needed else -1

    def returned_ms(self) -> int:
        """Since when this region is connected to half of all without a break. (With two regions: since it began.)"""
        return self._returned_ms

    def takes_part(self, now_ms: int) -> bool:
        """Return True if this region may go by its slice, and give: connected to half of all, and not only just now."""
        if self.regions <= 2:
            return True
        return self._returned_ms + RETURNING_MS <= now_ms <= self.connected_until_ms()

    def has_answered(self, peer: int, since_ms: int) -> bool:
        """Return True if the peer has told everything after it had heard a message sent at that time or later."""
        statement = self._statements.get(peer)
        return statement is not None and statement.complete and statement.as_of_ms >= since_ms

    def silent(self, now_ms: int) -> dict[int, int]:
        """The regions that this one has not heard for 30 s, and for how long."""
        ages_ms = {peer: now_ms - heard_ms for peer, heard_ms in self._heard_ms.items()}
        return {peer: age_ms for peer, age_ms in ages_ms.items() if age_ms >= SILENT_MS}

    def lost(self, now_ms: int) -> dict[int, int]:
        """The regions of which more than half of all, this one among them, say that they have not heard them, and
        for how long none of those has."""
        return self._silent_to_most(now_ms, complete=False)

    def taken_from(self, now_ms: int) -> dict[int, int]:
        """The lost regions whose slices this one takes its part of, and for how long they were silent.

        Only what the majority knows of their gifts is reckoned with, so those who state it must know all, and this
        region must be connected to more than half.
        """
        connected = 1 + sum(self.is_connected(peer, now_ms) for peer in self.peers)
        if connected * 2 <= self.regions:
            return {}
        return self._silent_to_most(now_ms, complete=True)

    def _silent_to_most(self, now_ms: int, *, complete: bool) -> dict[int, int]:
        own = self.silent(now_ms)
        if not own:
            return {}
        statements = [own] + [
            statement.silent_ms
            for statement in self._statements.values()
            if now_ms - statement.as_of_ms <= STATEMENT_MS and (statement.complete or not complete)
        ]
        found: dict[int, int] = {}
        for region in own:
            ages_ms = [statement[region] for statement in statements if region in statement]
            if len(ages_ms) * 2 > self.regions:
                found[region] = min(ages_ms)
        return found

    def statements_until_ms(self, now_ms: int) -> int:
        """Until when what was stated about lost regions counts, if nothing more is heard."""
        ages_ms = [s.as_of_ms for s in self._statements.values() if s.silent_ms and now_ms - s.as_of_ms <= STATEMENT_MS]
        return min(ages_ms, default=now_ms) + STATEMENT_MS
