"""Messages of the plane: they come back as they were, and what is out of bounds is refused with the bound."""

import pytest
from headgate.errors import BadRequest
from headgate.plane import codec
from headgate.plane.entry import (
    MAX_DOMAIN_BYTES,
    MAX_NAME_CHARS,
    MAX_PATH_BYTES,
    MAX_RULE_BYTES,
    MOST_CHANGES,
    Beat,
    FollowerHello,
    FollowerRefusal,
    FollowerState,
    FromFollower,
    FromPlane,
    LogEntry,
    Position,
    Report,
    RuleChange,
    RulesPart,
)
from headgate.v1 import rules_pb2 as pb

AT = Position("1-a", 7, "v7")
PUT = RuleChange("edge", (("user", "ann"), ("path", "")), b"{}")
DELETE = RuleChange("edge", (), None)
STATE = FollowerState("n1", "eu", "1.0", True, AT, 12, (FollowerRefusal("edge", "no"),))


@pytest.mark.parametrize(
    "said",
    [
        LogEntry(AT, "v6", (PUT, DELETE), "ann", "because", 5),
        RulesPart(AT, 3, (PUT,), last=True),
        Beat(AT, 17),
    ],
)
def test_what_a_plane_says_comes_back(said: FromPlane) -> None:
    assert codec.decode_from_plane(codec.encode_from_plane(said)) == said


@pytest.mark.parametrize("said", [FollowerHello(FollowerState("n1", "eu", "1.0", False, AT)), Report((STATE,))])
def test_what_a_follower_says_comes_back(said: FromFollower) -> None:
    assert codec.decode_from_follower(codec.encode_from_follower(said)) == said


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (RuleChange("d" * (MAX_DOMAIN_BYTES + 1), (), b"{}"), "domain has 256 bytes, at most 255"),
        (RuleChange("d", (("k", "é" * (MAX_PATH_BYTES // 2)),), b"{}"), "path has 4097 bytes, at most 4096"),
        (RuleChange("d", (), b"x" * (MAX_RULE_BYTES + 1)), "rule has 16385 bytes, at most 16384"),
        (RuleChange("", (), b"{}"), "without a domain"),
    ],
)
def test_a_change_out_of_bounds_is_refused(change: RuleChange, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        codec.decode_change(codec.encode_change(change))


def test_a_call_has_at_most_so_many_changes() -> None:
    message = codec.encode_change(DELETE)
    assert len(codec.decode_changes([message] * MOST_CHANGES)) == MOST_CHANGES
    with pytest.raises(BadRequest, match="10001 changes, at most 10000"):
        codec.decode_changes([message] * (MOST_CHANGES + 1))


def test_a_follower_is_bounded_in_what_it_says_of_itself() -> None:
    many = [pb.Follower(name=f"n{number}") for number in range(codec.MOST_FOLLOWERS + 1)]
    with pytest.raises(BadRequest, match="10001 followers"):
        codec.decode_from_follower(pb.WatchRequest(report=pb.Report(followers=many)).SerializeToString())
    with pytest.raises(BadRequest, match="without a name"):
        codec.decode_from_follower(pb.WatchRequest(hello=pb.Hello()).SerializeToString())
    refused = [pb.Refusal(domain="d", reason="r" * 10_000)] * 100
    state = codec.decode_follower(pb.Follower(name="n" * 10_000, refused=refused))
    assert (len(state.name), len(state.refused)) == (MAX_NAME_CHARS, codec.MOST_REFUSALS)
    assert len(state.refused[0].reason) == codec.MAX_REASON_CHARS


@pytest.mark.parametrize("decode", [codec.decode_from_plane, codec.decode_from_follower])
def test_bytes_that_are_nothing_are_refused(decode: object) -> None:
    assert callable(decode)
    for data in (b"", b"\xff\xff"):
        with pytest.raises(BadRequest):
            decode(data)
