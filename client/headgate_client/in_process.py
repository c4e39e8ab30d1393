"""Clients whose server is within the process: everything of theirs is real but the network."""

from collections.abc import Sequence
from typing import Any, Protocol

from headgate_client.aio import AsyncHeadgate
from headgate_client.breaker import Breaker
from headgate_client.client import Headgate
from headgate_client.core import Link


class Answering(Protocol):
    """What answers serialized messages at once. It raises grpc.RpcError or RateLimitError."""

    def answer(self, payload: bytes) -> bytes:
        """Decide a RateLimitRequest."""

    def reserve(self, payload: bytes) -> bytes:
        """Decide a ReserveRequest."""

    def settle(self, payload: bytes) -> bytes:
        """Decide a SettleRequest."""


class _Channel:
    def close(self) -> None:
        pass


class _AsyncChannel:
    async def close(self) -> None:
        pass


class InProcessHeadgate(Headgate):
    """A `Headgate` that asks what is in its own process."""

    def __init__(self, within: Answering, address: str, domain: str, **options: Any) -> None:
        super().__init__(address, domain, **options)
        self._within = within

    def _open_links(self) -> Sequence[Link]:
        def call(payload: bytes, **_: Any) -> bytes:
            return self._within.answer(payload)

        def reserve(payload: bytes, **_: Any) -> bytes:
            return self._within.reserve(payload)

        def settle(payload: bytes, **_: Any) -> bytes:
            return self._within.settle(payload)

        return [Link(call, Breaker(self._core.clock), _Channel(), reserve=reserve, settle=settle)]


class InProcessAsyncHeadgate(AsyncHeadgate):
    """An `AsyncHeadgate` that asks what is in its own process."""

    def __init__(self, within: Answering, address: str, domain: str, **options: Any) -> None:
        super().__init__(address, domain, **options)
        self._within = within

    async def _open_links(self) -> Sequence[Link]:
        async def call(payload: bytes, **_: Any) -> bytes:
            return self._within.answer(payload)

        async def reserve(payload: bytes, **_: Any) -> bytes:
            return self._within.reserve(payload)

        async def settle(payload: bytes, **_: Any) -> bytes:
            return self._within.settle(payload)

        return [Link(call, Breaker(self._core.clock), _AsyncChannel(), reserve=reserve, settle=settle)]
