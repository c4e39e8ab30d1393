"""Both clients behind one face, so that one test is for both."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from headgate_client import AsyncHeadgate, Decision, Headgate
from headgate_client.testing import FakeServer

KINDS = ("threads", "asyncio")
PATIENT_S = 30.0
"""A deadline for tests in which the server is there: however busy the machine, it answers."""


class Blocking:
    """An AsyncHeadgate, called without `await`, on a loop of its own."""

    def __init__(self, client: AsyncHeadgate, runner: asyncio.Runner) -> None:
        self.client = client
        self._runner = runner

    def check(self, *descriptors: Any, **options: Any) -> Decision:
        return self._runner.run(self.client.check(*descriptors, **options))

    def acquire(self, *descriptors: Any, **options: Any) -> Decision:
        return self._runner.run(self.client.acquire(*descriptors, **options))

    def reserve(self, *descriptors: Any, **options: Any) -> Any:
        """Awaited, and not entered."""

        async def reserved() -> Any:
            return await self.client.reserve(*descriptors, **options)

        return self._runner.run(reserved())

    def refund(self, *descriptors: Any, **options: Any) -> bool:
        return self._runner.run(self.client.refund(*descriptors, **options))

    def settle(self, reservation: str, actual: int) -> bool:
        return self._runner.run(self.client.settle(reservation, actual))

    def close(self) -> None:
        self._runner.run(self.client.close())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def __enter__(self) -> "Blocking":
        self._runner.run(self.client.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _blocking(runner: asyncio.Runner, *args: Any, **options: Any) -> Blocking:
    return Blocking(AsyncHeadgate(*args, **options), runner)


Client = Headgate | Blocking
Make = Callable[..., Client]
MakeBoth = Callable[..., list[Client]]


@contextlib.contextmanager
def maker(kind: str) -> Iterator[Make]:
    """Makes clients of that kind, and closes them at the end."""
    with contextlib.ExitStack() as ends:
        runner = ends.enter_context(asyncio.Runner()) if kind == "asyncio" else None

        def make(*args: Any, **options: Any) -> Client:
            client: Client = Headgate(*args, **options) if runner is None else _blocking(runner, *args, **options)
            ends.callback(client.close)
            return client

        yield make


@contextlib.contextmanager
def fake_maker(kind: str, server: FakeServer) -> Iterator[Make]:
    """Makes clients of that kind, of a fake server."""
    with contextlib.ExitStack() as ends:
        runner = ends.enter_context(asyncio.Runner()) if kind == "asyncio" else None

        def make(domain: str = "edge", **options: Any) -> Client:
            if runner is None:
                return server.client(domain, **options)
            return Blocking(server.async_client(domain, **options), runner)

        yield make
