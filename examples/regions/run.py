"""Three regions on this machine, and what a limit means in them by its scope.

    python examples/regions/run.py [--once|--stay] [--free-ports] [--origin URL --origin URL --origin URL]

Each region is one `headgate serve` on loopback, with its counts in its own memory, or in the Redis of its `--origin`.
They end when this process ends, however it ends short of SIGKILL.
"""

# ruff: noqa: T201 - it prints

import argparse
import contextlib
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from processes import Child, DemoFailed, child, free_ports, leave_on_signals, shown, status, stay, these_or_free_ports

HERE = Path(__file__).resolve().parent
NAMES = ("eu", "us", "ap")
SCOPES = ("region", "global", "quota", "cell")
LIMIT = 30
"""As in rules/regions.yaml."""
HEAR_TIMEOUT_S = 60.0
PORTS = (8111, 8112, 8113, 8101, 8102, 8103, 8121, 8122, 8123)
"""gRPC of each region, then HTTP, then the exchange; where another program has one, a free one is taken."""


@dataclass(frozen=True)
class Region:
    """One region, and where it listens on loopback."""

    name: str
    origin: str
    grpc: int
    http: int
    exchange: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"


NOTES = {"quota": "   a tenth each: slices follow the traffic some seconds after a start (docs/quota.md)"}


def main() -> int:
    arguments = _parse()
    leave_on_signals()
    ports = free_ports(len(PORTS)) if arguments.free_ports else these_or_free_ports(PORTS)
    origins = arguments.origin or ["memory://"] * len(NAMES)
    regions = [Region(name, origins[number], *ports[number :: len(NAMES)]) for number, name in enumerate(NAMES)]
    with tempfile.TemporaryDirectory(prefix="headgate-regions-") as directory:
        try:
            with contextlib.ExitStack() as stack:
                processes = start(stack, regions, Path(directory))
                introduce(regions)
                show_scopes(regions)
                show_peers(regions)
                if arguments.stay:
                    print(f"All stay up until Ctrl-C; their logs are in {directory}", flush=True)
                    stay(processes)
        except DemoFailed as failure:
            print(f"\n{failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--once", dest="stay", action="store_false", help="end after the requests")
    how_long.add_argument("--stay", action="store_true", help="stay up until Ctrl-C (default in a terminal)")
    parser.add_argument("--free-ports", action="store_true", help="take free ports in any case")
    parser.add_argument("--origin", action="append", metavar="URL", help="a Redis for each region, three times")
    parser.set_defaults(stay=sys.stdin.isatty())
    arguments = parser.parse_args()
    if arguments.origin and len(arguments.origin) != len(NAMES):
        parser.error(f"--origin: {len(arguments.origin)} given, and there are {len(NAMES)} regions")
    return arguments


# The three programs


def start(stack: contextlib.ExitStack, regions: Sequence[Region], directory: Path) -> list[Child]:
    """All at once; back when all are ready and connected to each other."""
    processes = [stack.enter_context(child(directory, region.name, command(region, regions))) for region in regions]
    for region, process in zip(regions, processes, strict=True):
        process.wait_ready(lambda region=region: status(region.http, "/readyz") == 200)
    for region, process in zip(regions, processes, strict=True):
        process.wait_ready(lambda region=region: is_connected(region))
    return processes


def command(region: Region, regions: Sequence[Region]) -> list[str]:
    words = [sys.executable, "-m", "headgate", "serve", "--rules", str(HERE / "rules"), "--drain-s", "0"]
    words += ["--region", region.name, "--origin", region.origin, "--grpc", f"127.0.0.1:{region.grpc}"]
    words += ["--http", f"127.0.0.1:{region.http}", "--exchange", f"127.0.0.1:{region.exchange}"]
    for peer in regions:
        if peer is not region:
            words += ["--peer", f"{peer.name}=127.0.0.1:{peer.exchange}"]
    return words


def is_connected(region: Region) -> bool:
    return all(peer["connected"] and peer["last_imported_ms"] for peer in get(region, "/regions")["peers"])


# Requests


def get(region: Region, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", region.http, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return json.load(connection.getresponse())


def ask(region: Region, key: str, hits: int = 1) -> tuple[bool, int]:
    """Whether it is admitted, and what remains. 0 hits charge nothing."""
    descriptor = {"entries": [{"key": key, "value": "alice"}], "hitsAddend": str(hits)}
    body = {"domain": "regions", "descriptors": [descriptor]}
    connection = http.client.HTTPConnection("127.0.0.1", region.http, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", "/json", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.load(response)
    return response.status == 200, answer["statuses"][0].get("limitRemaining", 0)


# What is shown


def introduce(regions: Sequence[Region]) -> None:
    print(f"Three regions with {shown(HERE / 'rules')}:\n")
    for region in regions:
        print(f"  {region.name}   {region.url}/regions   {region.url}/metrics   gRPC 127.0.0.1:{region.grpc}")
    headgate = shown(Path(sys.executable).with_name("headgate"))
    first, *_, last = regions
    print("\nTry, in another terminal:\n")
    print(f"  curl -s {first.url}/regions")
    print(f"  {headgate} check --addr 127.0.0.1:{first.grpc} --domain regions --hits 20 global_user=bob")
    print(
        f"  {headgate} check --addr 127.0.0.1:{last.grpc} --domain regions --hits 20 global_user=bob   # a second later"
    )


def show_scopes(regions: Sequence[Region]) -> None:
    """The limit is offered in one region after the other, each time when all have heard of the last."""
    print(f"\nUser alice may send {LIMIT} an hour, and sends {LIMIT} to each region, one after the other. Admitted:\n")
    print(f"  {'scope':<8}" + "".join(f"{region.name:>6}" for region in regions) + f"{'all':>7}")
    for scope in SCOPES:
        admitted = []
        for region in regions:
            admitted.append(sum(ask(region, f"{scope}_user")[0] for _ in range(LIMIT)))
            if scope == "global":
                wait_heard(regions, f"{scope}_user", LIMIT - sum(admitted))
        row = f"  {scope:<8}" + "".join(f"{count:>6}" for count in admitted) + f"{sum(admitted):>7}"
        print(row + NOTES.get(scope, ""), flush=True)


def wait_heard(regions: Sequence[Region], key: str, remaining: int) -> None:
    """Until every region knows what is left."""
    deadline = time.monotonic() + HEAR_TIMEOUT_S
    while any(ask(region, key, hits=0)[1] > remaining for region in regions):
        if time.monotonic() > deadline:
            raise DemoFailed(f"the regions have not heard of each other within {HEAR_TIMEOUT_S:g} s")
        time.sleep(0.2)


def show_peers(regions: Sequence[Region]) -> None:
    print("\nWhat /regions says of each peer (lag: how old what the peer knows of the region is):\n")
    for region in regions:
        for peer in get(region, "/regions")["peers"]:
            lag = f"{peer['lag_ms']} ms" if peer["lag_ms"] is not None else "not known yet"
            told = f"{peer['sent']['entries']} components told, {peer['received']['entries']} heard"
            state = "connected" if peer["connected"] else peer["error"]
            print(f"  {region.name} to {peer['region']}   {state}   lag {lag}   backlog {peer['backlog']}   {told}")
    print()


if __name__ == "__main__":
    sys.exit(main())
