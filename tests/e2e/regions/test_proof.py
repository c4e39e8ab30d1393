"""Regions prove who they are, with certificates or with tokens, both from files that are followed.

The origins are in the nodes' memory: a region of one process needs no other.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.transport.certificates import Certificate, authority, issued_by
from tests.e2e.regions.world import DOMAIN, EXACT_LIMIT, RULES, wait_for_peer
from tests.support.headgate import FREE_PORTS, Headgate, start, write_rules
from tests.support.redis_servers import free_port
from tests.support.waiting import wait_until

REGIONS = ("eu", "us")


class Pair:
    """Two regions of one process each."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        self._rules = write_rules(folder / "rules", RULES)
        self._stack = stack

    def start(self, **flags: list[str]) -> dict[str, Headgate]:
        sockets = {region: f"unix:{self.folder / region}.sock" for region in REGIONS}
        begun = {}
        for region, other in (REGIONS, REGIONS[::-1]):
            exchange = ["--exchange", sockets[region], "--peer", f"{other}={sockets[other]}", *flags[region]]
            options = [*FREE_PORTS, "--drain-s", "0", "--region", region, "--exchange-interval-s", "0.2", *exchange]
            begun[region] = self._stack.enter_context(start("serve", "--rules", str(self._rules), *options))
        return {region: node.wait_ready() for region, node in begun.items()}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, tmp_path)


def replace(path: Path, data: bytes) -> None:
    """At once, as files that somebody follows are replaced."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


def shared(nodes: dict[str, Headgate]) -> None:
    """What one region uses up the other one denies."""
    everything = {"domain": DOMAIN, "hitsAddend": EXACT_LIMIT, "descriptors": [{"entries": [{"key": "exact"}]}]}
    assert nodes["eu"].post_json(everything).status == 200
    one = {**everything, "hitsAddend": 1}
    wait_until(lambda: nodes["us"].post_json(one).status == 429, "the other region to know")
