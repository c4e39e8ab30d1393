"""Bugs to plant in a plane, each the simpler rule that somebody might write (see mutations.py)."""

from collections.abc import Mapping
from zlib import crc32

import pytest
from headgate.plane import content
from headgate.plane import domain_marks as plane_marks
from headgate.plane.entry import Beat, LogEntry, Position, RulesPart
from headgate.plane.following import Following
from headgate.plane.rule_log import RuleLog
from headgate.plane.watching import Watching
from headgate.rules import changes
from headgate.rules.marked import MarkedDomain
from headgate.rules.model import Match
from headgate.rules.ruleset import Domain
from headgate.simulation.plane.world import SimulatedFollower

Patch = pytest.MonkeyPatch


def apply_without_comparing_the_version(patch: Patch) -> None:
    """An entry, or a snapshot, is believed: one that was cut short leaves a mixture."""

    class Believed(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = str.__hash__

    def set_version(domains: Mapping[str, int]) -> str:
        return Believed(real(domains))

    real = content.set_version
    patch.setattr(content, "set_version", set_version)


def take_an_older_snapshot(patch: Patch) -> None:
    """Whatever a plane sends whole is taken."""

    def part(self: Following, part: RulesPart, now_s: float) -> bool:
        known = self.copy.position
        patch.setattr(Position, "is_behind", lambda *_: True)
        try:
            return real(self, part, now_s) and self.copy.position != known
        finally:
            patch.setattr(Position, "is_behind", is_behind)

    real, is_behind = Following._part, Position.is_behind
    patch.setattr(Following, "_part", part)


def a_beat_is_freshness(patch: Patch) -> None:
    """A beat counts although an entry was refused."""

    def beat(self: Following, beat: Beat, now_s: float) -> None:
        self.in_force, kept = True, self.in_force
        real(self, beat, now_s)
        self.in_force = kept

    real = Following._beat
    patch.setattr(Following, "_beat", beat)


def a_relay_is_never_old(patch: Patch) -> None:
    """A relay that lost the root says that its head is the root's."""

    def outgoing(self: Watching, now_s: float) -> object:
        for said in real(self, now_s):
            yield Beat(said.head) if isinstance(said, Beat) else said

    real = Watching.outgoing
    patch.setattr(Watching, "outgoing", outgoing)


def go_on_from_the_index(patch: Patch) -> None:
    """A follower is believed to have what was at its index, whichever log it was of."""
    patch.setattr(RuleLog, "begin_of", lambda self, has: min(has.index, self.position.index))


def entries_follow_by_index(patch: Patch) -> None:
    """The next entry is the one with the next index: a lost root's entries are built upon."""

    def follows(self: LogEntry, position: Position) -> bool:
        return self.position.index == position.index + 1

    patch.setattr(LogEntry, "follows", follows)
    apply_without_comparing_the_version(patch)


def a_lost_entry_is_lost(patch: Patch) -> None:
    """A follower that missed something waits for the next entry, and for ever."""
    patch.setattr(Following, "_begin_anew", lambda *_, **__: None)


def begin_with_the_history(patch: Patch) -> None:
    """Whoever has nothing is sent every entry there was: it decides by rules that were over long ago."""
    real = RuleLog.begin_of
    patch.setattr(RuleLog, "begin_of", lambda self, has: real(self, has) if has.index else 0)


def stage_by_node(patch: Patch) -> None:
    """A share of the nodes has the staged rules, for everybody."""

    def match(self: SimulatedFollower, domain: str, user: str) -> Match | None:
        rules = self.rules.current.domain(domain)
        if not isinstance(rules, MarkedDomain) or rules.staged is None or rules.marks.rollout is None:
            return real(self, domain, user)
        staged = crc32(self.name.encode()) / 2**32 < rules.marks.rollout.share / 1_000_000
        return (rules.staged if staged else rules.base).match([("user", user)])

    real = SimulatedFollower.match
    patch.setattr(SimulatedFollower, "match", match)


def choose_by_the_staged_key_first(patch: Patch) -> None:
    """The key that a request is to have says which rules decide: two callers that share a counter part ways."""
    real = MarkedDomain._is_staged
    patch.setattr(MarkedDomain, "_is_staged", lambda self, base, staged: real(self, staged, base))


def leave_the_order_of_staged_wildcards(patch: Patch) -> None:
    """A pattern that is staged comes behind those in force, wherever its place is."""
    patch.setattr(plane_marks, "staged_slots", lambda records: [])


def change_the_rules_in_force_alone(patch: Patch) -> None:
    """A change beside a rollout does not reach the staged rules."""

    def changed_marked(domain: MarkedDomain, change: changes.Change) -> Domain | None:
        done = real(domain, change)
        if isinstance(done, MarkedDomain) and not isinstance(change, changes.DomainMarks):
            return MarkedDomain(done.base, done.marks, domain.staged)
        return done

    real = changes._changed_marked
    patch.setattr(changes, "_changed_marked", changed_marked)
