"""Asks the same over and over, on a thread of its own, and keeps when it got which answer first and last."""

import threading
import time
from collections import Counter
from collections.abc import Callable


class Prober:
    """Asks from the begin of its context to the end."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self.counts: Counter[int] = Counter()
        self._ask = ask
        self._first_s: dict[int, float] = {}
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._probe)

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def first_s(self, answer: int) -> float:
        """The time (monotonic) at which that answer first came; 0: never."""
        return self._first_s.get(answer, 0.0)

    def _probe(self) -> None:
        try:
            while not self._stop.is_set():
                answer = self._ask()
                self._first_s.setdefault(answer, time.monotonic())
                self.counts[answer] += 1
        except Exception as error:
            self._failure = error
