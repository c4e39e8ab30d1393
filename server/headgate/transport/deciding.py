"""Deciding where calls are received: one pass over what came, with the loop's turn.

What needs nobody is answered, and what must wait for somebody is asked for. What is not its business is given back:
health, what the guard or a bound refuses, and whole batches for which there may be no room. Who admits those
looks at each (intake.py).

At a low rate a call comes alone, and the same code takes several times what it takes in a batch: then most of what a
call costs is how much code it meets. So what a batch needs is bound once, here, and counted once per batch. And of a
batch all that needs nobody is decided first, and the rest is asked for then: the same work many times in a row costs
less than different work in turns.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headgate.transport.guard.refusals import Refusals
from headgate.transport.interface import StagedHandler, TransportLimits, TransportStats, Undecided
from headgate.transport.shared_loop import Turn
from headgate.transport.timeouts import Timeouts

if TYPE_CHECKING:
    from pygrpc_native._native import Event

RATE_LIMIT = 0
"""The method that decisions are about; all others are health's."""

Take = Callable[[float, "list[Event]"], "list[Event]"]
"""When events were received (monotonic), and the events; those that are left."""


Respond = Callable[[int, bytes], object]
"""Sends a call its answer."""


class Calls(Protocol):
    """What a transport does with calls that are not answered at once, for whoever has the loop's turn."""

    def fail(self, call_id: int, error: BaseException) -> None:
        """Send what the error means to callers."""
        ...

    def wait(self, call_ids: list[int], size: int) -> None:
        """These calls, of so many bytes together, have no answer yet."""
        ...

    def end_wait(self, call_id: int, size: int, received_at: float, answer: bytes | BaseException) -> None:
        """Now it has."""
        ...


def taker(
    calls: Calls,
    respond: Respond,
    staged: StagedHandler,
    turn: Turn,
    limits: TransportLimits,
    stats: TransportStats,
    refusals: Refusals | None = None,
) -> Take:
    """What takes events off the receiving thread's hands. `refusals`: of the guard in front, if there is one."""
    max_calls, max_bytes, max_size = limits.max_pending_calls, limits.max_pending_bytes, limits.max_message_bytes
    max_free = min(max_calls, max_bytes // max_size)
    refusal_size, is_refusal = (-1, bytes.isspace) if refusals is None else (refusals.size, refusals.matches)
    at_once, staged_resume, take_turn, give_turn = staged.at_once, staged.resume, turn.take, turn.give
    fail, wait, end_wait = calls.fail, calls.wait, calls.end_wait
    timeouts, monotonic, add_durations = Timeouts(), time.monotonic, stats.durations.add

    def may_be_too_many(count: int) -> bool:
        """As if each were as large as may be, and waited: so nothing has to be added up first."""
        return stats.pending_calls + count > max_calls or stats.pending_bytes + count * max_size > max_bytes

    def take(received_at: float, events: "list[Event]") -> "list[Event]":
        count = len(events)
        # Mostly nothing waits, and then a number decides.
        if count > max_free or (stats.accepted_calls != stats.finished_calls and may_be_too_many(count)):
            return events
        left: list[Event] = []
        undecided: list[tuple[object, int, int]] = []
        waiting: list[int] = []
        answered = waiting_bytes = 0
        take_turn()
        try:
            waited_s = monotonic() - received_at
            for event in events:
                _, call_id, method, payload, timeout = event
                if (
                    payload is None
                    or method != RATE_LIMIT
                    or (size := len(payload)) > max_size
                    or (size == refusal_size and is_refusal(payload))
                ):
                    left.append(event)
                # The front gives the caller's address, a string, where there is no such header.
                elif type(timeout) is bytes and waited_s >= timeouts[timeout]:
                    stats.dropped_expired += 1
                else:
                    try:
                        answer = at_once(payload)
                        if type(answer) is bytes:
                            respond(call_id, answer)
                            answered += 1
                        else:
                            undecided.append((answer, call_id, size))
                    except Exception as error:
                        fail(call_id, error)
            for plan, call_id, size in undecided:
                try:
                    if not isinstance(plan, Undecided):
                        raise not_bytes(plan)
                    soon = staged_resume(plan, partial(end_wait, call_id, size, received_at))
                    if soon is None:
                        waiting.append(call_id)
                        waiting_bytes += size
                    else:
                        respond(call_id, soon)
                        answered += 1
                except Exception as error:
                    fail(call_id, error)
            if waiting:
                wait(waiting, waiting_bytes)
            stats.calls += count - len(left)
            add_durations(monotonic() - received_at, answered)
        finally:
            give_turn()
        return left

    return take


def not_bytes(answer: object) -> TypeError:
    """What is wrong with a handler's answer."""
    return TypeError(f"expected bytes from the handler, not {type(answer).__name__}")
