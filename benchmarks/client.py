"""What a call of the client costs its caller, and whether its deadline holds.

    python benchmarks/client.py [--calls N] [--stalls N] [--timeout-ms N]

A real server, then the same one stalled (SIGSTOP) under calls, before the breaker opens and after. Times are what
the caller waits, of both clients. Beside each of the client's calls, in turn, stands the same call of gRPC without the
client, and, where it is about the deadline, a plain wait of the same length, which shows what the machine
adds to any timer while this runs. Of a deadline that holds, the 99th percentile is at most 5 ms above it, on a
machine that has nothing else to do; on another one, the client's is compared with the other two.
"""

import argparse
import asyncio
import contextlib
import inspect
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from headgate_client import AsyncHeadgate, Headgate, channel
from headgate_client.arguments import request_of
from headgate_client.breaker import LATE_IN_A_ROW

from tests.support import headgate as servers
from tests.support.headgate import serve, write_rules

STALLS = 16
CALLS_PER_STALL = LATE_IN_A_ROW - 1
"""As many as wait for their whole deadline before the breaker opens."""
PATIENT_S = 5.0
REQUEST = request_of("edge", None, {"bulk": "x"}, 1)

Way = Callable[[float], Awaitable[Any]]
"""Waits for something, for that many seconds at most."""


def p99(waits: list[float]) -> float:
    return sorted(waits)[len(waits) * 99 // 100]


class Subject:
    """A client of either kind, and gRPC's channel of that kind."""

    def __init__(self, kind: str, client: Headgate | AsyncHeadgate, bare: Any, server: servers.Headgate) -> None:
        self.kind = kind
        self.client = client
        self.server = server
        self._bare_call = bare.unary_unary(channel.METHOD)

    async def check(self, **options: Any) -> Any:
        decision: Any = self.client.check(**options)
        return await decision if inspect.isawaitable(decision) else decision

    async def ours(self, timeout_s: float) -> None:
        await self.check(bulk="x", timeout=timeout_s)

    async def bare(self, timeout_s: float) -> None:
        with contextlib.suppress(grpc.RpcError):
            answer = self._bare_call(REQUEST, timeout=timeout_s)
            if inspect.isawaitable(answer):
                await answer

    async def wait(self, timeout_s: float) -> None:
        if self.kind == "threads":
            threading.Event().wait(timeout_s)
        else:
            await asyncio.sleep(timeout_s)

    async def in_turn(self, rounds: int, timeout_s: float, ways: Mapping[str, Way]) -> dict[str, list[float]]:
        """What each way waited, in µs, each round one after the other: so all meet the same machine."""
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                began_s = time.perf_counter()
                await way(timeout_s)
                found[name].append((time.perf_counter() - began_s) * 1e6)
        return found

    def show(self, what: str, waits: list[float]) -> None:
        print(
            f"{self.kind + ': ' + what:<48} {statistics.median(waits):8.0f} {p99(waits):8.0f} {max(waits):8.0f}",
            flush=True,
        )

    async def measure(self, calls: int, stalls: int, timeout_s: float) -> None:
        both: dict[str, Way] = {"gRPC alone": self.bare, "client": self.ours}
        await self.in_turn(1, PATIENT_S, both)
        for name, waits in (await self.in_turn(calls, PATIENT_S, both)).items():
            self.show(f"allowed by the server, {name}", waits)
        for _ in range(6):
            await self.check(user=self.kind, timeout=PATIENT_S)
        await self._show_alone("denied from memory", calls, user=self.kind)
        await self._show_deadline(stalls, timeout_s)
        self.server.send(signal.SIGSTOP)
        while self.client.reachable:
            await self.check(bulk="x")
        await self._show_alone("stalled, the breaker is open", calls, bulk="x")
        self.server.send(signal.SIGCONT)

    async def _show_alone(self, what: str, calls: int, **entries: str) -> None:
        async def way(_: float) -> None:
            await self.check(**entries)

        self.show(what, (await self.in_turn(calls, 0, {"": way}))[""])

    async def _show_deadline(self, stalls: int, timeout_s: float) -> None:
        ways: dict[str, Way] = {"a plain wait": self.wait, "gRPC alone": self.bare, "client": self.ours}
        late: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(stalls):
            while (await self.check(bulk="x", timeout=PATIENT_S)).degraded:
                pass
            self.server.send(signal.SIGSTOP)
            for name, waits in (await self.in_turn(CALLS_PER_STALL, timeout_s, ways)).items():
                late[name] += waits
            self.server.send(signal.SIGCONT)
        for name, waits in late.items():
            self.show(f"stalled, {timeout_s * 1000:.0f} ms, {name}", waits)
        above_ms = {name: p99(waits) / 1000 - timeout_s * 1000 for name, waits in late.items()}
        told = ", ".join(f"{name} {ms:+.1f} ms" for name, ms in above_ms.items())
        print(f"{'':<16} p99 above the deadline: {told}")
        print(
            f"{'':<16} the client's against gRPC's: {above_ms['client'] - above_ms['gRPC alone']:+.1f} ms", flush=True
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--stalls", type=int, default=STALLS, help=f"each of {CALLS_PER_STALL} calls of each way")
    parser.add_argument("--timeout-ms", type=float, default=30.0)
    args = parser.parse_args()
    timeout_s = args.timeout_ms / 1000
    print(f"{'µs':<48} {'median':>8} {'p99':>8} {'longest':>8}")
    with tempfile.TemporaryDirectory() as folder, serve(write_rules(Path(folder))) as server:
        with (
            Headgate(server.grpc, "edge", timeout=timeout_s, connect_timeout=PATIENT_S) as threads,
            grpc.insecure_channel(server.grpc, channel.OPTIONS) as bare,
        ):
            await Subject("threads", threads, bare, server).measure(args.calls, args.stalls, timeout_s)
        async with (
            AsyncHeadgate(server.grpc, "edge", timeout=timeout_s, connect_timeout=PATIENT_S) as tasks,
            grpc.aio.insecure_channel(server.grpc, channel.OPTIONS) as bare_aio,
        ):
            await Subject("asyncio", tasks, bare_aio, server).measure(args.calls, args.stalls, timeout_s)


if __name__ == "__main__":
    asyncio.run(main())
