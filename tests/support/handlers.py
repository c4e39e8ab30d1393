"""Handlers for tests of transports: a function answers."""

from collections.abc import Callable

from headgate.pending import PendingAnswer


class FunctionHandler:
    """A handler that answers as a function does."""

    def __init__(self, answer: Callable[[bytes], bytes | PendingAnswer]) -> None:
        self._answer = answer

    def answer(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        return self._answer(payload)
