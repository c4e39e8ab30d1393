"""Deciding where calls are received: what is answered, what waits, and what is left for others."""

import time
from functools import partial
from typing import Any

import pytest
from headgate.errors import BadRequest
from headgate.transport.deciding import RATE_LIMIT, taker
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.interface import OnAnswer, TransportLimits, TransportStats, Undecided
from headgate.transport.shared_loop import Turn

HEALTH = RATE_LIMIT + 1
PEER = "127.0.0.1:1"
LIMITS = TransportLimits(max_message_bytes=50, max_pending_calls=4, max_pending_bytes=200)


class Asked(Undecided):
    """What the handler below does not decide at once."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class Handler:
    """Answers `now` at once, `soon` in the second step, `wait` when a test says so; else it raises, or errs."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.waiting: list[OnAnswer] = []

    def at_once(self, payload: bytes) -> Any:
        assert not self.turn._mine.acquire(False), "decided without the turn"
        if payload.startswith(b"bad"):
            raise BadRequest("no domain")
        if payload == b"wrong":
            return "text"
        return b"answer" if payload.startswith(b"now") else Asked(payload)

    def resume(self, undecided: Undecided, then: OnAnswer) -> bytes | None:
        assert isinstance(undecided, Asked)
        if undecided.payload == b"soon":
            return b"later"
        self.waiting.append(then)
        return None


class Rig:
    """A taker with everything around it noted."""

    def __init__(self, limits: TransportLimits = LIMITS, refusals: Refusals | None = None) -> None:
        self.stats = TransportStats()
        self.turn = Turn()
        self.handler = Handler(self.turn)
        self.answers: dict[int, Any] = {}
        self.take = partial(
            taker(self, self.answers.__setitem__, self.handler, self.turn, limits, self.stats, refusals),
            time.monotonic(),
        )

    def fail(self, call_id: int, error: BaseException) -> None:
        self.answers[call_id] = type(error)

    def wait(self, call_ids: list[int], size: int) -> None:
        self.stats.accepted_calls += len(call_ids)
        self.stats.accepted_bytes += size
        self.answers.update(dict.fromkeys(call_ids))

    def end_wait(self, call_id: int, size: int, received_at: float, answer: bytes | BaseException) -> None:
        self.answers[call_id] = (size, received_at, answer)

    def is_free(self) -> bool:
        """Whether somebody else could have the turn now."""
        self.turn.take()
        self.turn.give()
        return not self.turn._next.locked()


def call(call_id: int, payload: bytes | None, *, method: int = RATE_LIMIT, timeout: str | bytes = PEER) -> Any:
    return (1, call_id, method, payload, timeout)


def test_each_call_is_answered_or_waits_or_fails_by_itself() -> None:
    rig = Rig()
    assert rig.take([call(1, b"now"), call(2, b"bad"), call(3, b"soon"), call(4, b"wait")]) == []
    assert rig.answers == {1: b"answer", 2: BadRequest, 3: b"later", 4: None}
    assert (rig.stats.calls, rig.stats.pending_calls, rig.stats.pending_bytes) == (4, 1, 4)
    assert sum(rig.stats.durations.counts) == 2, "what failed has no duration, and what waits none yet"
    rig.handler.waiting[0](b"at last")
    assert rig.answers[4] == (4, rig.take.args[0], b"at last")
    assert rig.is_free()


def test_an_answer_of_another_kind_is_an_error() -> None:
    rig = Rig()
    rig.take([call(1, b"wrong")])
    assert rig.answers == {1: TypeError}


def test_what_is_not_a_decision_is_left_and_not_counted() -> None:
    refusals = Refusals()
    kept_back = refusals.encode(Refusal.TOO_LARGE, 100)
    left = [
        call(1, b"", method=HEALTH),
        call(2, None),
        call(3, b"now" + b"x" * 48),
        call(4, kept_back),
    ]
    rig = Rig(TransportLimits(max_message_bytes=50), refusals)
    as_long = b"now" + b"x" * (len(kept_back) - 3)
    assert rig.take([*left, call(5, as_long)]) == left
    assert rig.answers == {5: b"answer"}
    assert rig.stats.calls == 1


@pytest.mark.parametrize("pending", [{"accepted_calls": 1, "accepted_bytes": 5}, {"accepted_calls": 3}])
def test_where_there_may_be_no_room_nothing_is_taken(pending: dict[str, int]) -> None:
    """One or more wait: then four of the largest size could be too many, or too large."""
    rig = Rig()
    for name, value in pending.items():
        setattr(rig.stats, name, value)
    events = [call(number, b"now") for number in range(4)]
    assert rig.take(events) is events
    assert rig.answers == {}
    assert rig.take(events[:1]) == []
    rig.stats.finished_calls, rig.stats.finished_bytes = rig.stats.accepted_calls, rig.stats.accepted_bytes
    assert rig.take(events) == []
    assert rig.take([*events, call(4, b"now")]) == [*events, call(4, b"now")]


def test_who_has_no_time_left_gets_no_decision() -> None:
    rig = Rig()
    assert rig.take([call(1, b"now", timeout=b"0m"), call(2, b"now", timeout=b"1H")]) == []
    assert rig.answers == {2: b"answer"}
    assert (rig.stats.calls, rig.stats.dropped_expired, rig.stats.pending_calls) == (2, 1, 0)
