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


def tokens(**given: str) -> bytes:
    return "".join(f"{region}={token}\n" for region, token in given.items()).encode()


def test_tokens_say_which_region_speaks_and_one_that_is_taken_back_is_refused(pair: Pair) -> None:
    files = {region: pair.folder / f"{region}.tokens" for region in REGIONS}
    for file in files.values():
        replace(file, tokens(eu="token-of-eu", us="token-of-us"))
    nodes = pair.start(**{region: ["--exchange-token-file", str(file)] for region, file in files.items()})
    shared(nodes)
    replace(files["us"], tokens(eu="another-token-of-eu", us="token-of-us"))
    wait_for_peer([nodes["eu"]], "us", lambda said: "UNAUTHENTICATED" in (said["error"] or ""))
    assert "exchange_token_file" in nodes["us"].wait_for_event("exchange_stream_ended")["reason"]
    wait_for_peer([nodes["us"]], "eu", lambda said: said["connected"] and said["error"] is None)
    assert not any("token-of" in line for node in nodes.values() for line in node.lines)


def test_certificates_say_which_region_speaks_and_one_of_another_region_is_refused(pair: Pair) -> None:
    ca = authority("regions")
    (pair.folder / "ca.crt").write_bytes(ca.cert_pem)
    nodes = pair.start(**{region: show(pair.folder, ca, region, names=(region,)) for region in REGIONS})
    shared(nodes)
    show(pair.folder, ca, "eu", names=("ap",))
    refused = "the certificate does not belong to region 'eu': it has the names (SAN) 'ap'"
    wait_for_peer([nodes["eu"]], "us", lambda said: refused in (said["error"] or ""))
    wait_until(
        lambda: any(refused in event.get("reason", "") for event in nodes["us"].events), "the other side to say so"
    )


def show(folder: Path, ca: Certificate, region: str, names: tuple[str, ...]) -> list[str]:
    """Have a region show a certificate with these names; the flags for it."""
    issued = issued_by(ca, region, *names)
    cert, key = folder / f"{region}.crt", folder / f"{region}.key"
    replace(cert, issued.cert_pem)
    replace(key, issued.key_pem)
    return [
        "--exchange-tls-cert",
        str(cert),
        "--exchange-tls-key",
        str(key),
        "--exchange-tls-ca",
        str(folder / "ca.crt"),
    ]
