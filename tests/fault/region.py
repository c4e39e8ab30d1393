"""A region to break: real nodes, real shards, a proxy before each shard, and names to find them by."""

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog
from headgate.clock import SystemClock
from headgate.origin.operations.call import Call
from headgate.origin.protocol import WindowAnswer
from headgate.origin.select import open_origin

from tests.fault.keys import Key, make_keys, rules_text
from tests.support.fault_proxy import FaultProxies
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer, redis_shards, shards_url
from tests.support.resolver_hosts import ResolverHosts
from tests.support.waiting import PATIENCE_S, wait_until

NODES: Final = 3
SHARDS: Final = 3
SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
SILENT: Final = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])
LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Numbers:
    """A scrape of /metrics."""

    def __init__(self, text: str) -> None:
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for line in text.splitlines():
            if (found := SAMPLE.match(line)) is not None:
                name, labels, value = found.groups()
                self._values[name, frozenset(LABEL.findall(labels or ""))] = float(value)

    def get(self, name: str, **labels: str) -> int:
        return int(self._values[name, frozenset(labels.items())])

    def decisions(self, path: str, outcome: str) -> int:
        """None so far is not shown."""
        labels = frozenset({("path", path), ("outcome", outcome)})
        return int(self._values.get(("headgate_decisions_total", labels), 0))

    def of_shard(self, name: str, shard: int) -> int:
        return self.get(f"headgate_shard_{name}_total", shard=str(shard))


class Region:
    def __init__(self, stack: ExitStack, directory: Path, *flags: str) -> None:
        self.rules = write_rules(directory / "rules", rules_text())
        self.servers = stack.enter_context(redis_shards(SHARDS))
        self.primary = stack.enter_context(RedisServer())
        """Not a shard: empty, for one that is demoted to follow."""
        self.proxies = stack.enter_context(FaultProxies([server.port for server in self.servers]))
        self.hosts = ResolverHosts(directory)
        self.names = [f"shard-{index}.test" for index in range(SHARDS)]
        for name in self.names:
            self.hosts.set(name, "127.0.0.1")
        addresses = [f"{name}:{port}" for name, port in zip(self.names, self.proxies.ports, strict=True)]
        self.url = f"redis://{','.join(addresses)}"
        self.nodes: list[Headgate] = []
        self._stack = stack
        self._directory = directory
        self._flags = flags

    def start_node(self, index: int, *flags: str) -> Headgate:
        data_dir = self._directory / f"node-{index}"
        options = ("--origin", self.url, "--data-dir", str(data_dir), *self._flags, *flags)
        return self._stack.enter_context(serve(self.rules, *options, environ=self.hosts.environ))

    def start_nodes(self) -> None:
        self.nodes = [self.start_node(index) for index in range(NODES)]
        self.wait_until_met()

    def wait_until_met(self) -> None:
        """Until every node knows of all, and of no former one."""
        wait_until(lambda: all(self.origin_of(node)["live_nodes"] == NODES for node in self.nodes), "the nodes to meet")

    def stop_node(self, index: int) -> None:
        assert self.nodes[index].stop() == 0

    def restart_node(self, index: int) -> None:
        self.nodes[index] = self.start_node(index)

    @property
    def addresses(self) -> list[str]:
        return [node.grpc for node in self.nodes]

    # What the nodes say

    def origin_of(self, node: Headgate) -> dict[str, Any]:
        origin: dict[str, Any] = json.loads(node.get("/readyz").body)["origin"]
        return origin

    def breakers(self, shards: Sequence[int]) -> dict[tuple[int, int], str]:
        """The state of every node's breaker for each of these shards."""
        found = {}
        for index, node in enumerate(self.nodes):
            states = self.origin_of(node)["shards"]
            found.update({(index, shard): states[shard]["breaker"] for shard in shards})
        return found

    def wait_until_open(self, shards: Sequence[int]) -> None:
        wait_until(lambda: "closed" not in self.breakers(shards).values(), "the breakers to open")

    def wait_until_closed(self, shards: Sequence[int]) -> float:
        """Until each breaker has been seen closed; the seconds that it took.

        Each, not all at once: where the machine is too busy for the deadline they open now and then.
        """
        began_s = time.monotonic()
        waiting = set(self.breakers(shards))

        def closed() -> bool:
            waiting.difference_update(pair for pair, state in self.breakers(shards).items() if state == "closed")
            return not waiting

        wait_until(closed, "the breakers to close")
        return time.monotonic() - began_s

    def wait_until_degraded(self, shards: Sequence[int], since: Sequence[Numbers]) -> None:
        """Until policies have decided on each of these shards."""

        def degraded(shard: int) -> int:
            pairs = zip(since, self.numbers(), strict=True)
            return sum(now.of_shard("degraded", shard) - then.of_shard("degraded", shard) for then, now in pairs)

        wait_until(lambda: all(degraded(shard) for shard in shards), "a fault that is felt")

    def numbers(self) -> list[Numbers]:
        return [Numbers(node.get("/metrics").body.decode()) for node in self.nodes]

    # What the origin really counts

    def make_keys(self, case: str) -> list[Key]:
        return make_keys(case, self.rules, open_origin(self.url, clock=SystemClock()))

    def totals(self, keys: Sequence[Key]) -> list[int]:
        """The region's total of each key, from the servers themselves."""
        return asyncio.run(self._totals(keys))

    async def _totals(self, keys: Sequence[Key]) -> list[int]:
        origin = open_origin(shards_url(self.servers), clock=SystemClock(), logger=SILENT)
        found: dict[bytes, int] = {}
        try:
            for shard in range(SHARDS):
                mine = [key for key in keys if key.shard == shard]
                call = Call(tuple(key.observed() for key in mine), ())
                reply = await origin.run(shard, call, PATIENCE_S)
                for key, answer in zip(mine, reply.answers, strict=True):
                    assert isinstance(answer, WindowAnswer)
                    found[key.name] = answer.current.region_total
        finally:
            await origin.close()
        return [found[key.name] for key in keys]


@contextmanager
def open_region(*flags: str) -> Iterator[Region]:
    with ExitStack() as stack:
        region = Region(stack, Path(stack.enter_context(TemporaryDirectory())), *flags)
        region.start_nodes()
        yield region
