"""What a call of the client costs its caller, and whether its deadline holds.

    python benchmarks/client.py [--calls N] [--timeout-ms N]

A real server, then the same one stalled (SIGSTOP) under calls, before the breaker opens and after. Times are what
the caller waits, of both clients. Of a deadline that holds, the 99th percentile is at most 5 ms above it, on a
machine that has nothing else to do.
"""

import argparse
import asyncio
import inspect
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from headgate_client import AsyncHeadgate, Headgate

from tests.support import headgate as servers
from tests.support.headgate import serve, write_rules

STALLS = 15
CALLS_PER_STALL = 20
"""As many as wait for their whole deadline before the breaker opens."""
PATIENT_S = 5.0


class Subject:
    """A client of either kind."""

    def __init__(self, kind: str, client: Headgate | AsyncHeadgate, server: servers.Headgate) -> None:
        self.kind = kind
        self.client = client
        self.server = server

    async def check(self, **options: Any) -> Any:
        decision: Any = self.client.check(**options)
        return await decision if inspect.isawaitable(decision) else decision

    async def waits_us(self, calls: int, **options: Any) -> list[float]:
        found = []
        for _ in range(calls):
            began_s = time.perf_counter()
            await self.check(**options)
            found.append((time.perf_counter() - began_s) * 1e6)
        return sorted(found)

    def show(self, what: str, waits: list[float]) -> None:
        p99 = waits[len(waits) * 99 // 100]
        print(f"{self.kind + ': ' + what:<44} {statistics.median(waits):8.0f} {p99:8.0f} {waits[-1]:8.0f}")

    async def measure(self, calls: int, timeout_s: float) -> None:
        await self.check(bulk="x", timeout=PATIENT_S)
        self.show("allowed by the server", await self.waits_us(calls, bulk="x", timeout=PATIENT_S))
        for _ in range(6):
            await self.check(user=self.kind, timeout=PATIENT_S)
        self.show("denied from memory", await self.waits_us(calls, user=self.kind))
        late: list[float] = []
        for _ in range(STALLS):
            while (await self.check(bulk="x", timeout=PATIENT_S)).degraded:
                pass
            self.server.send(signal.SIGSTOP)
            late += await self.waits_us(CALLS_PER_STALL, bulk="x")
            self.server.send(signal.SIGCONT)
        late.sort()
        self.show(f"stalled, deadline {timeout_s * 1000:.0f} ms", late)
        above_ms = late[len(late) * 99 // 100] / 1000 - timeout_s * 1000
        print(f"{'':<44} p99 is {above_ms:.1f} ms above the deadline")
        self.server.send(signal.SIGSTOP)
        while self.client.reachable:
            await self.check(bulk="x")
        self.show("stalled, the breaker is open", await self.waits_us(calls, bulk="x"))
        self.server.send(signal.SIGCONT)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--timeout-ms", type=float, default=30.0)
    args = parser.parse_args()
    timeout_s = args.timeout_ms / 1000
    print(f"{'µs':<44} {'median':>8} {'p99':>8} {'longest':>8}")
    with tempfile.TemporaryDirectory() as folder, serve(write_rules(Path(folder))) as server:
        with Headgate(server.grpc, "edge", timeout=timeout_s, connect_timeout=PATIENT_S) as threads:
            await Subject("threads", threads, server).measure(args.calls, timeout_s)
        async with AsyncHeadgate(server.grpc, "edge", timeout=timeout_s, connect_timeout=PATIENT_S) as tasks:
            await Subject("asyncio", tasks, server).measure(args.calls, timeout_s)


if __name__ == "__main__":
    asyncio.run(main())
