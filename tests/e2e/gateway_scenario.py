"""What a user of Envoy Gateway sees of Headgate as its rate-limit service; run by test_gateway.py in a namespace.

python -m tests.e2e.gateway_scenario PROGRAM DIRECTORY
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.envoy_gateway import XDS_ADDRESS, EnvoyGateway, limit
from tests.support.headgate import FREE_PORTS, Headgate, start
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

Chain = tuple[tuple[str, str], ...]
RESTARTS = 5


def route(gateway: str) -> tuple[str, str]:
    name = f"httproute/default/{gateway}/rule/0/match/0/*"
    return (name, name)


def same(name: str) -> tuple[str, str]:
    return (name, name)


def status(headgate: Headgate, gateway: str, *chain: tuple[str, str]) -> int:
    """Ask for what Envoy would ask for: the route, then the selector's entries."""
    entries = [{"key": key, "value": value} for key, value in (route(gateway), *chain)]
    body = {"domain": f"default/{gateway}/http", "descriptors": [{"entries": entries}]}
    return headgate.post_json(body).status


def admitted(headgate: Headgate, gateway: str, *chain: tuple[str, str], attempts: int = 10) -> int:
    return sum(status(headgate, gateway, *chain) == 200 for _ in range(attempts))


@contextmanager
def serving(gateway: EnvoyGateway, data_dir: Path, origin: str) -> Iterator[Headgate]:
    tls = ("--xds-tls", "--xds-server-name", "envoy-gateway", "--xds-ca", str(gateway.certs / "ca.crt"))
    pair = ("--xds-cert", str(gateway.certs / "tls.crt"), "--xds-key", str(gateway.certs / "tls.key"))
    retry = ("--xds-retry-s", "0.05", "--xds-retry-max-s", "0.1", "--data-dir", str(data_dir), "--drain-s", "0")
    redis = ("--origin", origin, "--origin-deadline-ms", "1000")
    with start("serve", "--rules", f"xds://{XDS_ADDRESS}", *tls, *pair, *retry, *redis, *FREE_PORTS) as headgate:
        yield headgate.wait_ready()


def rules_in_force(headgate: Headgate) -> int:
    return int(headgate.get("/rules").json()["total"])


EVERY_SELECTOR = [
    limit(3, "Hour", headers=[{"name": "x-plan", "value": "free"}]),
    limit(2, "Hour", headers=[{"name": "x-user", "type": "Distinct"}]),
    limit(4, "Hour", sourceCIDR={"value": "10.0.0.0/8"}),
    limit(1, "Hour", sourceCIDR={"value": "192.168.0.0/16", "type": "Distinct"}),
    limit(5, "Hour", methods=[{"value": "POST"}]),
    limit(6, "Hour", path={"type": "PathPrefix", "value": "/a"}),
    limit(7, "Hour"),
    limit(0, "Hour", headers=[{"name": "x-banned", "value": "yes"}]),
]
DESCRIPTORS: list[tuple[Chain, int]] = [
    ((same("rule-0-match-0"),), 3),
    ((("rule-1-match-0", "ada"),), 2),
    ((("rule-1-match-0", "bob"),), 2),
    ((("masked_remote_address", "10.0.0.0/8"),), 4),
    ((("masked_remote_address", "192.168.0.0/16"), ("remote_address", "192.168.0.7")), 1),
    ((("masked_remote_address", "192.168.0.0/16"), ("remote_address", "192.168.0.8")), 1),
    ((same("rule-4-method"),), 5),
    ((same("rule-5-path"),), 6),
    ((same("rule-6-match--1"),), 7),
    ((same("rule-7-match-0"),), 0),
]


def each_selector_is_limited_exactly(gateway: EnvoyGateway, headgate: Headgate) -> None:
    gateway.set_policy("one", EVERY_SELECTOR)
    wait_until(lambda: rules_in_force(headgate) >= len(EVERY_SELECTOR), "the rules of every selector")
    for chain, expected in DESCRIPTORS:
        assert admitted(headgate, "one", *chain) == expected, (chain, headgate.get("/rules").body)


def an_edited_policy_counts_and_a_deleted_one_does_not(gateway: EnvoyGateway, headgate: Headgate) -> None:
    all_of_it = same("rule-0-match--1")
    gateway.set_policy("one", [limit(2, "Hour")])
    wait_until(lambda: rules_in_force(headgate) == 1, "the edited policy")
    assert admitted(headgate, "one", all_of_it) == 2
    gateway.remove("policy-one")
    wait_until(lambda: rules_in_force(headgate) == 0, "the limit to be lifted")
    assert admitted(headgate, "one", all_of_it) == 10


class Prober:
    """Asks about limits that are spent, over and over, and counts who was let through."""

    def __init__(self, headgate: Headgate, gateways: tuple[str, ...]) -> None:
        self._headgate = headgate
        self._gateways = gateways
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._probe)
        self.asked = 0
        self.passed = 0

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._stop.is_set():
            for gateway in self._gateways:
                self.passed += status(self._headgate, gateway, same("rule-0-match--1")) == 200
                self.asked += 1


def a_gateway_that_restarts_lets_nobody_through(gateway: EnvoyGateway, headgate: Headgate) -> None:
    names = ("one", "two")
    for name in names:
        gateway.set_policy(name, [limit(1, "Hour")])
    wait_until(lambda: rules_in_force(headgate) == 2, "both policies")
    for name in names:
        assert admitted(headgate, name, same("rule-0-match--1"), attempts=3) <= 1
    with Prober(headgate, names) as prober:
        for number in range(RESTARTS):
            streams = headgate.get("/rules").json()["feed"]["streams"]
            gateway.kill()
            gateway.start()
            wait_until(lambda: _whole_again(headgate, streams), f"restart {number}")  # noqa: B023
    assert prober.asked > 100
    assert prober.passed == 0, f"{prober.passed} of {prober.asked}"


def _whole_again(headgate: Headgate, streams: int) -> bool:
    """Answered on a new stream that has shown everything."""
    feed = headgate.get("/rules").json()["feed"]
    return bool(feed["connected"] and feed["streams"] > streams and not feed["held"])


def the_last_good_rules_outlive_a_restart_without_a_gateway(gateway: EnvoyGateway, data_dir: Path, origin: str) -> None:
    gateway.kill()
    with serving(gateway, data_dir, origin) as headgate:
        assert rules_in_force(headgate) == 2
        assert headgate.get("/rules").json()["source"] == "snapshot"
        # Spent before, and known to Redis.
        assert admitted(headgate, "one", same("rule-0-match--1")) == 0
        gateway.start()
        wait_until(lambda: headgate.get("/rules").json()["source"] == "xds", "the gateway")


def main(program: Path, directory: Path) -> None:
    gateway = EnvoyGateway(program, directory / "gateway")
    gateway.add_gateway("one", 8888)
    gateway.add_gateway("two", 8889)
    data_dir = directory / "data"
    with RedisServer() as redis, gateway.running():
        origin = f"redis://127.0.0.1:{redis.port}"
        with serving(gateway, data_dir, origin) as headgate:
            each_selector_is_limited_exactly(gateway, headgate)
            an_edited_policy_counts_and_a_deleted_one_does_not(gateway, headgate)
            a_gateway_that_restarts_lets_nobody_through(gateway, headgate)
        the_last_good_rules_outlive_a_restart_without_a_gateway(gateway, data_dir, origin)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
