"""Rollouts and shadows that are under way, as they are shown to whoever asks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.plane.codec import encode_counts, encode_path
from headgate.plane.entry import FollowerState
from headgate.plane.marks import RolloutRecord, ShadowRecord
from headgate.plane.records import Records
from headgate.plane.rollouts import RolloutTallies, waits_for
from headgate.v1 import rules_pb2 as pb


@dataclass(frozen=True, slots=True)
class PlaneMarks:
    """Rollouts and shadows of one moment."""

    rollouts: Sequence[RolloutRecord]
    shadows: Sequence[ShadowRecord]
    changes: dict[str, int]
    """Rules that the rollout of a domain changes."""


def under_way(records: Records) -> PlaneMarks:
    """Look what is under way."""
    return PlaneMarks(records.rollouts(), records.shadows(), records.staged_counts())


def encode_rollouts(
    found: PlaneMarks, tallies: RolloutTallies, followers: Sequence[FollowerState], now_ms: int
) -> Iterable[pb.Rollout]:
    """Write rollouts as messages."""
    for one in found.rollouts:
        yield pb.Rollout(
            domain=one.domain,
            name=one.rollout,
            share=one.share,
            stages=one.stages,
            stage_ms=one.stage_ms,
            expect_denials=one.expect_denials,
            who=one.who,
            why=one.why,
            began_ms=one.began_ms,
            stage_began_ms=one.stage_began_ms,
            halted=one.halted,
            changes=found.changes.get(one.domain, 0),
            counts=encode_counts(tallies.of(one.domain, one.rollout)),
            waits_for=waits_for(one, followers, now_ms),
        )


def encode_shadows(found: PlaneMarks) -> Iterable[pb.Shadow]:
    """Write shadows as messages."""
    for one in found.shadows:
        yield pb.Shadow(domain=one.domain, path=encode_path(one.path), until_ms=one.until_ms, who=one.who, why=one.why)
