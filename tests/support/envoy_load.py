"""Steady HTTP traffic through Envoy: a few kept-alive connections that hardly pause, and what they got.

Every request has a time limit, so a hang is seen as a broken request and not as a
test that waits for ever. A test has phases: an answer counts in the phase in which its
request was sent, so nothing has to be waited for when a new one begins.
"""

import contextlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType

from tests.support.waiting import PATIENCE_S

PACE_S = 0.005
"""Between two requests of a connection: steady traffic, and still some CPU for what is tested."""

HANG_S = 2 * PATIENCE_S
"""No answer for so long is a hang: Envoy gives up on Headgate long before."""


class Load:
    def __init__(self, address: str, path: str, headers: Mapping[str, str], connections: int = 8) -> None:
        self._address = address
        self._path = path
        self._headers = dict(headers)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._phase: Counter[int] = Counter()
        """Replaced when a new phase begins; requests keep the one they were sent in."""
        self.total: Counter[int] = Counter()
        self.broken: list[str] = []
        """Requests without an answer, as what happened instead."""
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(connections)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        deadline = time.monotonic() + HANG_S + 5
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if error is None:
            assert not any(thread.is_alive() for thread in self._threads), "a request hangs"

    def wait_for_answers(self, count: int, timeout_s: float = PATIENCE_S) -> Counter[int]:
        """Statuses of this phase, once there are so many of them."""
        with self._changed:
            enough = self._changed.wait_for(lambda: self._phase.total() >= count or self.broken, timeout_s)
            assert not self.broken, self.broken
            assert enough, f"{self._phase} after {timeout_s} s: wanted {count} answers"
            return Counter(self._phase)

    def begin_phase(self) -> None:
        with self._changed:
            self._phase = Counter()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=HANG_S)
        with contextlib.closing(connection):
            while not self._stopping.wait(PACE_S):
                phase = self._phase
                try:
                    connection.request("GET", self._path, headers=self._headers)
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException) as error:
                    self._note_broken(repr(error))
                    return
                self._note(phase, response.status)

    def _note(self, phase: Counter[int], status: int) -> None:
        with self._changed:
            self.total[status] += 1
            phase[status] += 1
            self._changed.notify_all()

    def _note_broken(self, what: str) -> None:
        with self._changed:
            self.broken.append(what)
            self._changed.notify_all()
