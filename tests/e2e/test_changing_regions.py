"""Regions come and go while the others run, by the steps of docs/regions.md: nothing is lost, nobody let in wrongly."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer, free_port
from tests.support.waiting import wait_until

RULES = """
domain: all
descriptors:
- key: together
  rate_limit: {unit: year, requests_per_unit: 30, precision: 0, scope: global}
- key: part
  rate_limit: {unit: year, requests_per_unit: 30, scope: cell}
"""


class Site:
    """One region of one node: its server stays, its node is started anew with other peers."""

    def __init__(self, name: str, rules: Path, redis: RedisServer) -> None:
        self.name = name
        self.exchange = f"127.0.0.1:{free_port()}"
        self._rules = rules
        self._redis = redis
        self._running: AbstractContextManager[Headgate] | None = None
        self.node: Headgate

    def start(self, *peers: "Site", called: str = "") -> None:
        """Anew, if it runs."""
        self.stop()
        flags = [word for peer in peers for word in ("--peer", f"{peer.name}={peer.exchange}")]
        self._running = serve(
            self._rules,
            *("--region", called or self.name, "--origin", self._redis.url, "--origin-deadline-ms", "1000"),
            *("--exchange", self.exchange, *flags),
        )
        self.node = self._running.__enter__()

    def stop(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            try:
                self.node.stop()
            finally:
                running.__exit__(None, None, None)

    def regions(self) -> Any:
        return self.node.get("/regions").json()

    def is_joined(self) -> bool:
        """Connected to all, told by all, and nothing left to tell."""
        peers = self.regions()["peers"]
        return all(peer["connected"] and not peer["filling"] and not peer["backlog"] for peer in peers)

    def error(self) -> str:
        """Of its only peer."""
        return self.regions()["peers"][0]["error"] or ""

    def ask(self, key: str, hits: int) -> Any:
        """0 hits look, and charge nothing."""
        descriptor = {"entries": [{"key": key, "value": "x"}], "hitsAddend": str(hits)}
        return self.node.post_json({"domain": "all", "descriptors": [descriptor]})

    def remaining(self, key: str) -> int:
        return int(self.ask(key, 0).json()["statuses"][0].get("limitRemaining", 0))

    def knows(self, remaining: int) -> bool:
        """What is left of the limit of all regions."""
        return self.remaining("together") == remaining

    def limit(self, key: str) -> int:
        return int(self.ask(key, 0).json()["statuses"][0]["currentLimit"]["requestsPerUnit"])


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site, Site]]:
    rules = write_rules(tmp_path / "rules", RULES)
    with ExitStack() as stack:
        made = []
        for name in ("eu", "us", "ap"):
            site = Site(name, rules, stack.enter_context(RedisServer()))
            stack.callback(site.stop)
            made.append(site)
        eu, us, ap = made
        yield eu, us, ap


def until_known(remaining: int, *sites: Site) -> None:
    for site in sites:
        wait_until(partial(site.knows, remaining), f"{site.name} to know of {remaining}")


def until_joined(*sites: Site) -> None:
    for site in sites:
        wait_until(site.is_joined, f"{site.name} to be told by all, and to have told them")


def test_two_regions_become_three_and_two_again(sites: tuple[Site, Site, Site]) -> None:
    eu, us, ap = sites
    eu.start(us)
    us.start(eu)
    assert eu.ask("together", 12).status == 200
    until_known(18, eu, us)
    assert (eu.limit("part"), us.limit("part")) == (15, 15)

    eu.start(us, ap)
    us.start(eu, ap)
    until_known(18, eu, us)
    ap.start(eu, us)
    until_joined(eu, us, ap)
    until_known(18, ap)
    assert [site.regions()["active"] for site in sites] == [3, 3, 3]
    assert [site.limit("part") for site in sites] == [10, 10, 10]
    assert ap.ask("together", 10).status == 200
    until_known(8, eu, us)

    wait_until(ap.is_joined, "ap to have told the others")
    ap.stop()
    eu.start(us)
    us.start(eu)
    until_joined(eu, us)
    until_known(8, eu, us)
    assert (eu.limit("part"), us.limit("part")) == (15, 15)
    assert us.ask("together", 9).status == 429


def test_a_region_renamed_by_mistake_is_refused_and_told_why(sites: tuple[Site, Site, Site]) -> None:
    eu, us, _ = sites
    eu.start(us)
    us.start(eu, called="su")
    assert us.ask("together", 12).status == 200, "it serves, alone"
    wait_until(lambda: "'su' is no peer of region 'eu'" in us.error(), "the refusal")
    wait_until(lambda: "this is region 'su'" in eu.error(), "the other way")
    assert eu.remaining("together") == 30
