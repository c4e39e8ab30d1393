"""A real process that takes its rules from an xDS server with the habits of Envoy Gateway's."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.ads import AdsServer, config
from tests.support.headgate import FREE_PORTS, Headgate, start
from tests.support.waiting import wait_until

PROTOCOLS = ("sotw", "delta")


def started(ads: AdsServer, *arguments: str) -> contextlib.AbstractContextManager[Headgate]:
    xds = ("--rules", f"xds://{ads.address}", "--xds-retry-s", "0.05", "--xds-retry-max-s", "0.2")
    return start("serve", *xds, "--drain-s", "0", *FREE_PORTS, *arguments)


@contextlib.contextmanager
def serving(ads: AdsServer, *arguments: str) -> Iterator[Headgate]:
    with started(ads, "--start-without-rules", "true", *arguments) as headgate:
        yield headgate.wait_ready()


def rules(headgate: Headgate) -> Any:
    return headgate.get("/rules").json()


def limits(headgate: Headgate) -> dict[str, int]:
    """Requests per unit by domain, as in force."""
    return {rule["domain"]: rule["limit"]["requests_per_unit"] for rule in rules(headgate)["rules"]}


def wait_for(headgate: Headgate, expected: dict[str, int]) -> None:
    wait_until(lambda: limits(headgate) == expected, f"limits {expected}; they are {limits(headgate)}")


def admitted(headgate: Headgate, domain: str, user: str, attempts: int) -> int:
    body = {"domain": domain, "descriptors": [{"entries": [{"key": "user", "value": user}]}]}
    return sum(headgate.post_json(body).status == 200 for _ in range(attempts))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rules_arrive_change_and_go(protocol: str) -> None:
    with AdsServer() as ads, serving(ads, "--xds-protocol", protocol, "--xds-headers", "x-token:t") as headgate:
        # Nothing yet is waited for, and serving goes on.
        wait_until(lambda: ads.requests, "the first request")
        first = ads.requests[0]
        assert (first.node.id, first.response_nonce, ads.metadata[0]["x-token"]) == ("envoy-ratelimit", "", "t")
        assert rules(headgate)["source"] == "nothing"
        assert admitted(headgate, "a", "u", 3) == 3
        ads.send([config("b", 7), config("a", 2)])
        wait_for(headgate, {"a": 2, "b": 7})
        assert admitted(headgate, "a", "u", 5) == 2
        ads.send([config("a", 4), config("b", 7)])
        wait_for(headgate, {"a": 4, "b": 7})
        assert admitted(headgate, "a", "u", 5) == 2
        # The last limit deleted empties the set.
        ads.send([])
        wait_for(headgate, {})
        assert admitted(headgate, "a", "u", 5) == 5
        assert (rules(headgate)["source"], rules(headgate)["in_sync"]) == ("xds", True)


@pytest.mark.parametrize("first", [[config("a", 2)], []])
def test_a_process_is_not_ready_before_the_first_rules_have_come(first: list[Any]) -> None:
    """An empty set is a set."""
    with AdsServer() as ads, started(ads) as headgate:
        wait_until(lambda: ads.requests, "the first request")
        ads.send(first)
        headgate.wait_ready()
        said = [event["event"] for event in headgate.events]
        before = [event for event in said[: said.index("serving")] if event in ("rules_in_force", "rules_unchanged")]
        assert (len(before), len(limits(headgate))) == (2, len(first)), "nothing, and then what came"


def test_a_process_that_waits_for_rules_stops_when_it_is_told_to() -> None:
    with AdsServer() as ads, started(ads) as headgate:
        wait_until(lambda: ads.requests, "the first request")
        assert headgate.stop() == 0
        assert "serving" not in {event["event"] for event in headgate.events}


def test_the_same_set_in_another_order_is_acknowledged_and_does_nothing() -> None:
    with AdsServer() as ads, serving(ads) as headgate:
        ads.send([config(name, 1) for name in "abcdef"])
        wait_until(lambda: len(ads.acks) == 1, "the acknowledgement")
        version = rules(headgate)["version"]
        for _ in range(4):
            before = len(ads.acks)
            ads.send([config(name, 1) for name in "abcdef"])
            wait_until(partial(_more_than, ads, before), "the next")
        assert (rules(headgate)["version"], rules(headgate)["accepted"]) == (version, 1)


def metrics(headgate: Headgate) -> dict[str, float]:
    """Values of the stream's metrics."""
    found = text_string_to_metric_families(headgate.get("/metrics").body.decode())
    return {
        sample.name: sample.value
        for family in found
        for sample in family.samples
        if sample.name.startswith("headgate_xds_")
    }


def _more_than(ads: AdsServer, acks: int) -> bool:
    return len(ads.acks) > acks


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_bad_domain_is_refused_alone_slowly_and_with_its_line(protocol: str) -> None:
    with AdsServer() as ads, serving(ads, "--xds-protocol", protocol) as headgate:
        ads.send([config("a", 2), config("b", 2)])
        wait_for(headgate, {"a": 2, "b": 2})
        ads.send([config("a", 3), config("b", 3, unit=0)])
        # The good one goes into force, the bad one keeps its last good rules.
        wait_for(headgate, {"a": 3, "b": 2})
        wait_until(lambda: ads.refusals, "the refusal")
        assert ads.refusals[0].error_detail.message.startswith("xds/b:5: ")
        found = rules(headgate)
        assert found["in_sync"] is False
        assert found["last_error"]["problems"][0].startswith("xds/b:5: ")
        if protocol == "sotw":
            # This server answers at once with the same set: it is not read again, and not refused in a hot loop.
            wait_until(lambda: len(ads.refusals) == 2, "the second refusal")
            assert [refusal.version_info for refusal in ads.refusals] == ["1", "1"]
        assert rules(headgate)["rejected"] == 1
        shown = metrics(headgate)
        assert shown["headgate_xds_refusals_total"] == len(ads.refusals) > 0
        assert shown["headgate_xds_responses_total"] >= 2
        ads.send([config("a", 3), config("b", 5)])
        wait_for(headgate, {"a": 3, "b": 5})
        wait_until(lambda: rules(headgate)["in_sync"], "all to be well")


def test_a_server_that_restarts_with_a_part_of_its_domains_lifts_no_limit() -> None:
    with AdsServer() as ads, serving(ads) as headgate:
        ads.send([config("a", 2), config("b", 2)])
        wait_for(headgate, {"a": 2, "b": 2})
        ads.stop()
        wait_until(lambda: not rules(headgate)["feed"]["connected"], "the end of the stream")
        assert rules(headgate)["last_error"]["problems"][0].startswith(f"xds://{ads.address}:1: UNAVAILABLE")
        assert headgate.wait_for_event("rules_not_delivered")["level"] == "warning"
        assert rules(headgate)["rejected"] == 0, "a server that is away has refused nothing, nor have we"
        assert limits(headgate) == {"a": 2, "b": 2}
        with AdsServer(port=ads.port) as again:
            again.send([config("b", 3)])
            wait_for(headgate, {"a": 2, "b": 3})
            shown = metrics(headgate)
            assert (shown["headgate_xds_connected"], shown["headgate_xds_held_resources"]) == (1, 1)
            assert shown["headgate_xds_streams_total"] == rules(headgate)["feed"]["streams"] >= 2
            # Empty, though versions of the former process were seen.
            assert (again.requests[0].version_info, again.requests[0].response_nonce) == ("", "")  # type: ignore[union-attr]
            again.send([config("a", 2), config("b", 3)])
            wait_until(lambda: len(again.acks) == 2, "the whole set")
            # Shown by this stream and dropped: gone at once.
            again.send([config("b", 3)])
            wait_for(headgate, {"b": 3})
            assert (rules(headgate)["in_sync"], rules(headgate)["feed"]["connected"]) == (True, True)


def test_the_last_good_rules_serve_after_a_restart_while_the_server_is_away(tmp_path: Path) -> None:
    with AdsServer() as ads:
        with serving(ads, "--data-dir", str(tmp_path)) as headgate:
            ads.send([config("a", 2)])
            wait_for(headgate, {"a": 2})
        ads.stop()
        with serving(ads, "--data-dir", str(tmp_path)) as headgate:
            # Nothing is wrong: the server has not answered yet.
            assert headgate.wait_for_event("serving_last_good_rules")["level"] == "info"
            assert limits(headgate) == {"a": 2}
            assert (rules(headgate)["source"], rules(headgate)["in_sync"]) == ("snapshot", False)
            assert admitted(headgate, "a", "u", 5) == 2
            wait_until(lambda: rules(headgate)["last_error"], "the reason")
            with AdsServer(port=ads.port) as again:
                again.send([config("a", 2)])
                wait_until(lambda: rules(headgate)["source"] == "xds", "the server")
                assert rules(headgate)["in_sync"] is True


def test_a_node_that_the_server_does_not_know_hears_nothing() -> None:
    with AdsServer(node_id="somebody-else") as ads, serving(ads, "--xds-node-metadata", "zone=a") as headgate:
        ads.send([config("a", 2)])
        wait_until(lambda: ads.requests, "the first request")
        assert ads.requests[0].node.metadata["zone"] == "a"
        assert (rules(headgate)["source"], limits(headgate)) == ("nothing", {})
