"""A region's nodes from their bulletins: who answers, whose rules differ, and sums of those that answer."""

from typing import Any

from headgate.origin.operations.bulletins import MAX_BULLETIN_BYTES
from headgate.runtime.bulletin import decode, encode
from headgate.runtime.nodes import SILENT_MS, describe_nodes


def said(node: str, age_ms: int = 0, digest: str = "d", **more: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "node": node,
        "run": f"{node}/1",
        "version": "1",
        "state": "serving",
        "started_ms": 5,
        "rules": {"version": f"1-{digest}", "digest": digest, "loaded_ms": 1, "in_sync": True, "refused_domains": 0},
        "shards": [{"shard": 0, "breaker": "closed", "error": ""}],
        "age_ms": age_ms,
        **more,
    }


def going_on(buckets: dict[int, int], rates: list[Any] | None = None, calls: list[Any] | None = None) -> dict[str, Any]:
    told = [{"begin_s": begin_s, "decisions": {"admitted local": count}} for begin_s, count in buckets.items()]
    return {
        "trend": {"2": {"grain_s": 2, "most": 150, "buckets": told}},
        "top": {"denied_over_s": 120, "denied_may_be_low_by": 0, "rules": []},
        "rates": rates or [],
        "calls": calls or [],
    }


def described(*bulletins: dict[str, Any], error: str = "") -> Any:
    told = {"region": "eu", "node": "a", "live_nodes": 2, "error": error, "bulletins": list(bulletins)}
    return describe_nodes(told, 2)


def counts(answer: Any) -> dict[int, int]:
    return {bucket["begin_s"]: sum(bucket["decisions"].values()) for bucket in answer["trend"]["buckets"]}


def test_sums_are_of_those_that_answer_and_know_that_somebody_looks() -> None:
    answer = described(
        said("a", **going_on({100: 1}, [["edge", "user", "", 1.0, 2.0, 0.0, 0.5]], [[0, 10.0, 1.0, 10.0, 0.1]])),
        said("b", 1_999, **going_on({100: 2}, [["edge", "user", "", 3.0, 0.0, 0.0, 0.0]], [[0, 30.0, 0.0, 30.0, 0.7]])),
        said("brief"),
        said("silent", SILENT_MS, **going_on({100: 4})),
    )
    assert answer["summed"] == ["a", "b"]
    assert [(node["node"], node["answers"]) for node in answer["nodes"]] == [
        ("a", True), ("b", True), ("brief", True), ("silent", False),
    ]  # fmt: skip
    assert counts(answer) == {100: 3}
    assert answer["rules"] == [
        {"domain": "edge", "rule": "user", "value": "", "within_limit": 4.0, "over_limit": 2.0,
         "shadow_over_limit": 0.0, "near_limit": 0.5}
    ]  # fmt: skip
    (shard,) = answer["shards"]
    assert (shard["calls"], shard["failures"], round(shard["mean_s"], 6)) == (40.0, 1.0, 0.02)


def test_a_step_is_told_when_every_node_has_told_of_it_and_a_slow_clock_holds_nobody_back_for_long() -> None:
    late = described(said("a", **going_on({96: 1, 98: 1, 100: 1})), said("b", **going_on({96: 2, 98: 2})))
    assert counts(late) == {96: 3, 98: 3}
    behind = described(said("a", **going_on({94: 1, 96: 1, 100: 1})), said("b", **going_on({2: 7})))
    assert counts(behind) == {2: 7, 94: 1}


def test_a_node_that_was_started_again_is_told_once() -> None:
    answer = described(said("a", 9_000, run="a/1"), said("a", 10, run="a/2"))
    assert [(node["run"], node["answers"]) for node in answer["nodes"]] == [("a/2", True)]


def test_rules_differ_from_those_of_most_nodes() -> None:
    answer = described(said("a", digest="x"), said("b"), said("c"), said("gone", SILENT_MS, digest="x"))
    assert [node["rules"]["differ"] for node in answer["nodes"]] == [True, False, False, True]


def test_of_a_shard_the_worst_breaker_is_told_and_where_it_is_not_closed() -> None:
    half = [{"shard": 0, "breaker": "half_open", "error": "timed out"}]
    wide = [{"shard": 0, "breaker": "open", "error": ""}]
    answer = described(said("a"), said("b", shards=half), said("c", shards=wide), said("d", SILENT_MS, shards=wide))
    (shard,) = answer["shards"]
    assert (shard["breaker"], shard["not_closed_on"], shard["error"]) == ("open", ["b", "c"], "timed out")
    assert shard["mean_s"] is None


def test_what_cant_be_read_is_told_by_the_name_of_its_node() -> None:
    whole = said("a")
    assert decode(b"a/1", encode(whole)) == whole
    newer = encode({**whole, "format": 2})
    for content in (b"", b"no", encode(whole)[:-5], newer, encode({**whole, "shards": 5}), encode({"format": 1})):
        assert decode(b"n/0/7", content) == {"node": "n/0", "run": "n/0/7", "unreadable": True}, content
    answer = described(whole, {**decode(b"b/7", newer), "age_ms": 3})
    assert answer["nodes"][1] == {"node": "b", "run": "b/7", "age_ms": 3, "answers": False, "unreadable": True}
    assert answer["summed"] == []


def test_a_bulletin_that_would_be_too_long_says_how_its_node_is_and_no_more() -> None:
    long = said("a", **going_on({}))
    # Nothing that can be compressed.
    long["top"]["rules"] = [str(hash((number, "x")) * 7**5) for number in range(10_000)]
    content = encode(long)
    assert len(content) <= MAX_BULLETIN_BYTES
    assert decode(b"a/1", content) == said("a")
