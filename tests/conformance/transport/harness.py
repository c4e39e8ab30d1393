"""What the transport suite shares: a programmable handler, all transports, ways to wait."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import grpc
import structlog
from headgate.endpoint.tls import TlsFiles
from headgate.endpoint.trust import Trust
from headgate.pending import PendingAnswer
from headgate.transport.guard.transport import GuardedTransport
from headgate.transport.interface import (
    RATE_LIMIT_METHOD,
    Handler,
    Serving,
    Transport,
    TransportFactory,
    TransportLimits,
)
from headgate.transport.select import choose_transport
from structlog.testing import CapturingLogger

from tests.support.waiting import PATIENCE_S, until

Kind = Literal["native", "guarded", "grpcio"]
KINDS: tuple[Kind, ...] = ("native", "guarded", "grpcio")
# Loopback answers within a millisecond; the rest is room for a busy machine.
TIMEOUT_S = PATIENCE_S


class Script:
    """A handler whose answers a test sets: an exception is raised, anything else returned.

    What a function or a future gives is given on the loop, later; all else at once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reply: Any = None
        self.payloads: list[bytes] = []
        self.threads: list[str] = []

    def answer(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        if callable(self.reply) or isinstance(self.reply, asyncio.Future):
            pending = PendingAnswer()
            self._loop.call_soon_threadsafe(self._answer_later, payload, pending)
            return pending
        return self._answer(payload)  # type: ignore[no-any-return]  # a test may set what is no answer

    def _answer(self, payload: bytes) -> Any:
        self.payloads.append(payload)
        self.threads.append(threading.current_thread().name)
        answer = self.reply(payload) if callable(self.reply) else self.reply
        if isinstance(answer, BaseException):
            raise answer
        return b"echo:" + payload if answer is None else answer

    def _answer_later(self, payload: bytes, pending: PendingAnswer) -> None:
        try:
            answer = self._answer(payload)
        except Exception as error:
            pending.on_answer(error)
            return
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda future: pending.on_answer(_outcome(future)))
        else:
            pending.on_answer(answer)


def _outcome(future: "asyncio.Future[bytes]") -> Any:
    return future.exception() or future.result()


class Server:
    """A running transport and what a test needs around it."""

    def __init__(self, transport: Transport, script: Script, log: CapturingLogger) -> None:
        self.transport = transport
        self.script = script
        self.log = log

    @property
    def address(self) -> str:
        return self.transport.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def events(self) -> list[str]:
        """The names of all logged events."""
        return [call.kwargs["event"] for call in self.log.calls]


def factory_of(kind: Kind, tls: TlsFiles | None = None, trust: Trust | None = None) -> TransportFactory:
    """On loopback nobody would choose the guard, and tests listen nowhere else."""
    if kind == "guarded":
        return partial(GuardedTransport, tls=tls, trust=trust)
    return choose_transport(kind, "127.0.0.1:0", tls)


def make_transport(
    kind: Kind,
    address: str = "127.0.0.1:0",
    handler: Handler | None = None,
    *,
    limits: TransportLimits | None = None,
    **options: Any,
) -> tuple[Transport, CapturingLogger]:
    log = CapturingLogger()
    logger = structlog.wrap_logger(log, processors=[lambda _logger, _name, event: ((), event)])
    factory = factory_of(kind, options.pop("tls", None), options.pop("trust", None))
    return factory(Serving(address, handler or Script(), limits or TransportLimits(), logger, **options)), log


@asynccontextmanager
async def serving(kind: Kind, address: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[Server]:
    script = Script()
    transport, log = make_transport(kind, address, script, **options)
    await transport.start()
    transport.set_serving(True)
    try:
        yield Server(transport, script, log)
    finally:
        await transport.stop(0)


@asynccontextmanager
async def dialled(address: str, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    # Not shared with channels of other tests to the same port.
    options.setdefault("options", [("grpc.use_local_subchannel_pool", 1)])
    async with grpc.aio.insecure_channel(address, **options) as channel:
        yield channel


def call(
    channel: grpc.aio.Channel, payload: bytes = b"", *, method: str = RATE_LIMIT_METHOD, timeout_s: float = TIMEOUT_S
) -> "grpc.aio.UnaryUnaryCall[bytes, bytes]":
    caller: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    return caller(payload, timeout=timeout_s)


async def status_of_call(pending: Any) -> tuple[grpc.StatusCode, str | None]:
    """Status and message of a call that is expected to fail."""
    try:
        answer = await pending
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"expected a failure, got {answer[:100]!r}")


async def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a condition; fail when it doesn't come true."""
    await until(condition, "a condition that never came true", timeout_s)
