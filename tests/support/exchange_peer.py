"""A region's exchange as a process of its own, that a test can stop and kill.

It prints its address, then a line for each batch that it takes in. Batch number 13 is begun and never done.

```python
with PeerProcess("us", ["eu"]) as peer:
    await link.send(…)
    peer.signal(signal.SIGSTOP)
```
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import structlog
from headgate.clock import SystemClock
from headgate.exchange.grpc_server import ExchangeServer
from headgate.exchange.hello import Regions
from headgate.exchange.identity import Security
from headgate.exchange.messages import Ack, Batch
from headgate.telemetry.bounded import BoundedLogger

NEVER_DONE = 13


class PeerProcess:
    """The test's side. Whatever was done to it, it is gone afterwards."""

    def __init__(self, region: str, peers: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.exchange_peer", region, *peers], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        self.address = self.line()

    def line(self) -> str:
        return self._stdout.readline().strip()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._stdout.close()


class _Receiver:
    async def check(self, region: str) -> None: ...

    async def receive(self, region: str, batch: Batch) -> Ack:
        _say(f"{region} {batch.number}")
        if batch.number == NEVER_DONE:
            await asyncio.Event().wait()
        return Ack(batch.number, 0)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _serve(region: str, peers: Sequence[str]) -> None:
    logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    server = ExchangeServer(
        "127.0.0.1:0",
        _Receiver(),
        regions=Regions(region, frozenset(peers)),
        security=Security(logger),
        clock=SystemClock(),
        logger=BoundedLogger(logger, SystemClock()),
    )
    await server.start()
    _say(server.address)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2:]))
