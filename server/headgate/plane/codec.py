"""Values of the log to and from protobuf. Everything that comes in is bounded here, and BadRequest says by what."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headgate.endpoint.methods import parsed
from headgate.errors import BadRequest
from headgate.limiter.rule_name import Steps
from headgate.plane.entry import (
    MAX_DOMAIN_BYTES,
    MAX_NAME_CHARS,
    MAX_PATH_BYTES,
    MAX_RULE_BYTES,
    MOST_CHANGES,
    MOST_IN_ENTRY,
    Beat,
    FollowerHello,
    FollowerRefusal,
    FollowerState,
    FromFollower,
    FromPlane,
    LogEntry,
    Position,
    RecordKind,
    Report,
    RolloutCounts,
    RuleChange,
    RulesPart,
)
from headgate.v1 import rules_pb2 as pb

SERVICE: Final = "headgate.v1.Rules"
WATCH: Final = f"/{SERVICE}/Watch"
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one message in either direction: an entry of 10,000 rules of 1.6 KiB each."""
MOST_FOLLOWERS: Final = 10_000
"""Followers in one report, and in one status."""
MOST_REFUSALS: Final = 20
MOST_ROLLOUTS: Final = 100
"""Rollouts at one time, and those that a follower reports of."""
MAX_REASON_CHARS: Final = 500

_KINDS: Final = {
    RecordKind.RULE: pb.RECORD_KIND_RULE,
    RecordKind.STAGED: pb.RECORD_KIND_STAGED,
    RecordKind.SHADOW: pb.RECORD_KIND_SHADOW,
}

_KINDS_BY_NUMBER: Final[Mapping[int, RecordKind]] = {number: kind for kind, number in _KINDS.items()}


# Changes


def encode_change(change: RuleChange) -> pb.RuleChange:
    message = pb.RuleChange(domain=change.domain, path=encode_path(change.path), kind=_KINDS[change.kind])
    if change.rule is not None:
        message.rule = change.rule
    return message


def decode_change(message: pb.RuleChange) -> RuleChange:
    """Read a change. Raises BadRequest for one that is out of bounds."""
    path = decode_path(message.path)
    rule = message.rule if message.HasField("rule") else None
    if message.ByteSize() > MAX_DOMAIN_BYTES:
        _check_bounds(message, path, rule)
    if not message.domain:
        raise BadRequest("a change without a domain")
    return RuleChange(message.domain, path, rule, _kind(message.kind))


def _check_bounds(message: pb.RuleChange, path: Steps, rule: bytes | None) -> None:
    """Look at each part of a change that is longer than the least bound of all."""
    bounds = (
        ("domain", len(message.domain.encode()), MAX_DOMAIN_BYTES),
        ("path", sum(len(key.encode()) + len(value.encode()) for key, value in path), MAX_PATH_BYTES),
        ("rule", len(rule or b""), MAX_RULE_BYTES),
    )
    for what, size, most in bounds:
        if size > most:
            raise BadRequest(f"a change whose {what} has {size} bytes, at most {most} are accepted")


def _kind(number: int) -> RecordKind:
    kind = _KINDS_BY_NUMBER.get(number)
    if kind is None:
        raise BadRequest(f"a change of kind {number}, which this version does not know")
    return kind


def decode_changes(messages: Sequence[pb.RuleChange], most: int = MOST_CHANGES) -> tuple[RuleChange, ...]:
    """Read the changes of one call, or one entry. Raises BadRequest where they are too many."""
    if len(messages) > most:
        raise BadRequest(f"{len(messages)} changes, at most {most} are accepted in one call")
    return tuple(map(decode_change, messages))


def encode_path(path: Steps) -> list[pb.Step]:
    return [pb.Step(key=key, value=value) for key, value in path]


def decode_path(steps: Iterable[pb.Step]) -> Steps:
    return tuple([(step.key, step.value) for step in steps])


# Entries and positions


def encode_position(position: Position) -> pb.Position:
    return pb.Position(plane=position.plane, index=position.index, version=position.version)


def decode_position(message: pb.Position) -> Position:
    return Position(message.plane[:MAX_NAME_CHARS], message.index, message.version[:MAX_NAME_CHARS])


def encode_entry(entry: LogEntry) -> pb.LogEntry:
    return pb.LogEntry(
        position=encode_position(entry.position),
        predecessor=entry.predecessor,
        changes=map(encode_change, entry.changes),
        who=entry.who,
        why=entry.why,
        made_ms=entry.made_ms,
        carries_on=entry.carries_on,
    )


def decode_entry(message: pb.LogEntry) -> LogEntry:
    """Read an entry. Raises BadRequest for one that is out of bounds."""
    return LogEntry(
        decode_position(message.position),
        message.predecessor,
        decode_changes(message.changes, MOST_IN_ENTRY),
        message.who,
        message.why,
        message.made_ms,
        message.carries_on,
    )


def encode_part(part: RulesPart) -> pb.RulesPart:
    return pb.RulesPart(
        position=encode_position(part.position),
        number=part.number,
        rules=map(encode_change, part.rules),
        last=part.last,
    )


def decode_part(message: pb.RulesPart) -> RulesPart:
    """Read a part. Raises BadRequest for one that is out of bounds."""
    return RulesPart(decode_position(message.position), message.number, decode_changes(message.rules), message.last)


# The stream


def encode_from_plane(said: FromPlane) -> bytes:
    if isinstance(said, LogEntry):
        return pb.WatchResponse(entry=encode_entry(said)).SerializeToString()
    if isinstance(said, RulesPart):
        return pb.WatchResponse(part=encode_part(said)).SerializeToString()
    return pb.WatchResponse(beat=pb.Beat(head=encode_position(said.head), age_ms=said.age_ms)).SerializeToString()


def decode_from_plane(data: bytes) -> FromPlane:
    """Read one message of the plane's. Raises BadRequest."""
    message = parsed(pb.WatchResponse, data)
    if message.HasField("entry"):
        return decode_entry(message.entry)
    if message.HasField("part"):
        return decode_part(message.part)
    if message.HasField("beat"):
        return Beat(decode_position(message.beat.head), max(0, message.beat.age_ms))
    raise BadRequest("an empty message")


def encode_from_follower(said: FromFollower) -> bytes:
    if isinstance(said, Report):
        return pb.WatchRequest(report=pb.Report(followers=map(encode_follower, said.followers))).SerializeToString()
    state = said.follower
    hello = pb.Hello(
        name=state.name,
        region=state.region,
        software=state.software,
        relay=state.relay,
        has=encode_position(state.has),
    )
    return pb.WatchRequest(hello=hello).SerializeToString()


def decode_from_follower(data: bytes) -> FromFollower:
    """Read one message of a follower's. Raises BadRequest."""
    message = parsed(pb.WatchRequest, data)
    if message.HasField("hello"):
        hello = message.hello
        return FollowerHello(_follower(hello.name, hello.region, hello.software, hello.relay, hello.has))
    if message.HasField("report"):
        if len(message.report.followers) > MOST_FOLLOWERS:
            raise BadRequest(f"a report of {len(message.report.followers)} followers, at most {MOST_FOLLOWERS}")
        return Report(tuple(map(decode_follower, message.report.followers)))
    raise BadRequest("an empty message")


def encode_follower(state: FollowerState, age_ms: int = 0) -> pb.Follower:
    return pb.Follower(
        name=state.name,
        region=state.region,
        software=state.software,
        relay=state.relay,
        has=encode_position(state.has),
        since_ms=state.since_ms,
        refused=[
            pb.Refusal(domain=item.domain, reason=item.reason[:MAX_REASON_CHARS])
            for item in state.refused[:MOST_REFUSALS]
        ],
        rollouts=map(encode_counts, state.rollouts[:MOST_ROLLOUTS]),
        age_ms=age_ms,
    )


def encode_counts(counts: RolloutCounts) -> pb.RolloutCounts:
    return pb.RolloutCounts(
        domain=counts.domain,
        rollout=counts.rollout,
        staged_decided=counts.staged_decided,
        staged_denied=counts.staged_denied,
        base_decided=counts.base_decided,
        base_denied=counts.base_denied,
    )


def _counts(message: pb.RolloutCounts) -> RolloutCounts:
    return RolloutCounts(
        message.domain[:MAX_DOMAIN_BYTES],
        message.rollout[:MAX_NAME_CHARS],
        message.staged_decided,
        message.staged_denied,
        message.base_decided,
        message.base_denied,
    )


def decode_follower(message: pb.Follower) -> FollowerState:
    refused = tuple(
        FollowerRefusal(item.domain[:MAX_DOMAIN_BYTES], item.reason[:MAX_REASON_CHARS])
        for item in message.refused[:MOST_REFUSALS]
    )
    state = _follower(message.name, message.region, message.software, message.relay, message.has)
    rollouts = tuple(map(_counts, message.rollouts[:MOST_ROLLOUTS]))
    return replace(state, since_ms=message.since_ms, refused=refused, rollouts=rollouts)


def _follower(
    name: str,
    region: str,
    software: str,
    relay: bool,
    has: pb.Position,
) -> FollowerState:
    if not name:
        raise BadRequest("a follower without a name")
    most = MAX_NAME_CHARS
    return FollowerState(name[:most], region[:most], software[:most], relay, decode_position(has))
