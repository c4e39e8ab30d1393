"""Requests to the nodes of a region, at random times and on random nodes, and what came of each.

A thread sends them, whatever is still unanswered, so that a test can break and heal
things meanwhile. What keys it uses can be changed at any time.
"""

import contextlib
import random
import selectors
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

from benchmarks import load
from tests.fault.keys import Key
from tests.support.waiting import PATIENCE_S, wait_until

METHOD: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
HUNG_S: Final = PATIENCE_S
"""A call that is not answered so long after the last one was sent never will be."""
CONNECTIONS: Final = 4
"""To each node: a server takes 100 calls at a time on one."""
IDLE_S: Final = 0.02
"""How long the thread waits for answers before it looks whether it is to stop."""


class Connection(load.Connection):
    """Remembers how a call failed: `resets` has the HTTP/2 error codes of those that were reset."""

    def __init__(self, address: str) -> None:
        super().__init__(address, METHOD)
        self.resets: dict[int, int] = {}

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes, on_answer: load.OnAnswer) -> None:
        if kind == load.RST_STREAM and stream in self._calls:
            self.resets[self._calls[stream]] = int.from_bytes(payload, "big")
        super()._frame(kind, flags, stream, payload, on_answer)


@dataclass(slots=True)
class Request:
    key: Key
    node: int
    number: int
    """On its connection."""
    sent_s: float
    answered_s: float = 0.0
    """0 while it is not."""
    admitted: bool = False
    failed: str = ""
    """How, if it did: `reset` with the HTTP/2 code, or `status`: the server answered with an error."""

    @property
    def took_s(self) -> float:
        return self.answered_s - self.sent_s

    def answer(self, message: bytes | None, reset: int | None) -> None:
        if message is None:
            self.failed = "status" if reset is None else f"reset {reset}"
        else:
            self.admitted = RateLimitResponse.FromString(message).overall_code == RateLimitResponse.OK
        self.answered_s = time.monotonic()


class Traffic:
    """Everything that was ever asked is in `log`."""

    def __init__(self, *, per_s: float, seed: int = 1) -> None:
        self.keys: Sequence[Key] = ()
        self.log: list[Request] = []
        self._per_s = per_s
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered = 0

    def ask(self, address: str, node: int, keys: Sequence[Key], *, together: bool = False) -> list[Request]:
        """One request on each key, one after the other or all at once, on a connection of its own."""
        asked: list[Request] = []
        connection = Connection(address)
        with contextlib.closing(connection.socket):
            for key in keys:
                asked.append(self._note(key, node, len(asked)))
                connection.call(len(asked) - 1, key.payload)
                connection.send()
                while connection.under_way and (not together or len(asked) == len(keys)):
                    connection.receive(lambda number, message: self._take(asked[number], message, connection))
        return asked

    def start(self, addresses: Sequence[str], keys: Sequence[Key]) -> None:
        self.keys = keys
        self._thread = threading.Thread(target=self._run, args=(addresses,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more is sent; returns when all is answered, or never will be."""
        assert self._thread is not None
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, number: int) -> None:
        """Until that many more are answered."""
        goal = self._answered + number
        wait_until(lambda: self._answered >= goal, f"{number} answers")

    def wait_for_each(self, keys: Sequence[Key], number: int) -> None:
        """Until that many are answered on each of these keys, since the beginning."""

        def enough() -> bool:
            answered = Counter(request.key.name for request in list(self.log) if request.answered_s)
            return all(answered[key.name] >= number for key in keys)

        wait_until(enough, f"{number} answers on each key")

    def admitted(self, key: Key) -> int:
        return sum(request.admitted for request in list(self.log) if request.key is key)

    def _take(self, request: Request, message: bytes | None, connection: Connection) -> None:
        request.answer(message, connection.resets.get(request.number))
        self._answered += 1

    def _note(self, key: Key, node: int, number: int) -> Request:
        request = Request(key, node, number, time.monotonic())
        self.log.append(request)
        return request

    def _run(self, addresses: Sequence[str]) -> None:
        opened = [Connection(address) for address in addresses for _ in range(CONNECTIONS)]
        with selectors.DefaultSelector() as selector:
            for connection in opened:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._send_and_receive(selector, opened)
        for connection in opened:
            connection.socket.close()

    def _send_and_receive(self, selector: selectors.BaseSelector, opened: list[Connection]) -> None:
        pending: dict[int, tuple[Request, Connection]] = {}

        def answered(number: int, message: bytes | None) -> None:
            request, connection = pending.pop(number)
            self._take(request, message, connection)

        due_s, number, give_up_s = time.monotonic(), 0, float("inf")
        while True:
            now_s = time.monotonic()
            while due_s <= now_s and not self._stop.is_set():
                free = [index for index, connection in enumerate(opened) if connection.under_way < load.MAX_STREAMS]
                if not free:
                    break
                index = self._random.choice(free)
                key = self._random.choice(self.keys)
                pending[number] = (self._note(key, index // CONNECTIONS, number), opened[index])
                opened[index].call(number, key.payload)
                opened[index].send()
                number += 1
                due_s += self._random.expovariate(self._per_s)
            if self._stop.is_set():
                give_up_s = min(give_up_s, now_s + HUNG_S)
                if not pending or now_s > give_up_s:
                    return
            wait_s = min(IDLE_S, due_s - now_s) if due_s > now_s and not self._stop.is_set() else IDLE_S
            for ready, _ in selector.select(timeout=wait_s):
                ready.data.receive(answered)
