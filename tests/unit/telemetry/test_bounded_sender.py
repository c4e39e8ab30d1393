"""The bounded sender: never blocks who offers, bounds what waits, counts what it drops, and ends in time."""

import threading
import time

from headgate.telemetry.bounded_sender import BoundedSender

from tests.support.waiting import PATIENCE_S


class Receiver:
    """Takes batches while it is let."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.free = threading.Event()
        self.reached = threading.Event()
        self.error: Exception | None = None

    def send(self, items: list[str]) -> None:
        self.reached.set()
        self.free.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.batches.append(items)


def test_items_arrive_in_their_order_and_in_batches() -> None:
    receiver = Receiver()
    receiver.free.set()
    sender = BoundedSender("test", receiver.send, batch=3)
    for item in "abcdefg":
        assert sender.offer(item)
    sender.start()
    assert sender.flush(PATIENCE_S)
    assert receiver.batches == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert (sender.sent, sender.failed, sender.dropped, sender.waiting) == (7, 0, 0, 0)
    sender.close(PATIENCE_S)


def test_what_waits_or_is_being_sent_is_bounded_in_number_and_in_bytes() -> None:
    receiver = Receiver()
    sender = BoundedSender("test", receiver.send, max_items=10, max_bytes=100)
    sender.start()
    assert sender.offer("a", weight=4, size=10)
    assert receiver.reached.wait(PATIENCE_S)
    assert sender.offer("b", weight=6)
    assert not sender.offer("c"), "ten wait, one of them on its way"
    assert sender.dropped == 1
    receiver.free.set()
    assert sender.flush(PATIENCE_S)
    assert sender.sent == 10
    receiver.free.clear()
    assert sender.offer("d", size=100)
    assert not sender.has_room(size=1)
    assert sender.has_room()
    assert not sender.offer("e", weight=3, size=1)
    assert sender.dropped == 4
    receiver.free.set()
    sender.close(PATIENCE_S)
    assert receiver.batches == [["a"], ["b"], ["d"]]


def test_an_outage_is_said_once_and_counted_and_does_not_end_it() -> None:
    receiver, said = Receiver(), list[str]()
    receiver.free.set()
    sender = BoundedSender("test", receiver.send, on_outage=lambda error: said.append(str(error)))
    sender.start()
    for error in (OSError("gone"), OSError("still gone"), None, OSError("again")):
        receiver.error = error
        sender.offer("x", weight=2)
        assert sender.flush(PATIENCE_S)
    assert said == ["gone", "again"]
    assert (sender.sent, sender.failed) == (2, 6)
    sender.close(PATIENCE_S)


def test_less_than_a_batch_waits_for_more_and_a_whole_one_does_not() -> None:
    receiver = Receiver()
    receiver.free.set()
    sender = BoundedSender("test", receiver.send, batch=2, gather_s=2 * PATIENCE_S)
    sender.start()
    sender.offer("a")
    assert not sender.flush(0.05)
    sender.offer("b")
    assert sender.flush(PATIENCE_S)
    sender.offer("c")
    sender.close(PATIENCE_S)
    assert receiver.batches == [["a", "b"], ["c"]], "what waits at the end waits no longer"


def test_ending_sends_what_waits_and_then_what_is_last() -> None:
    receiver, ended = Receiver(), threading.Event()
    sender = BoundedSender("test", receiver.send, at_end=ended.set)
    sender.offer("a")
    sender.offer("b")
    sender.start()
    threading.Timer(0.05, receiver.free.set).start()
    sender.close(PATIENCE_S)
    assert receiver.batches == [["a"], ["b"]]
    assert ended.is_set()
    assert not sender.offer("late")
    assert sender.dropped == 1


def test_what_sending_brings_about_is_sent_even_at_the_end() -> None:
    got: list[str] = []

    def send(items: list[str]) -> None:
        got.extend(items)
        if items == ["a"]:
            sender.offer("b")

    sender = BoundedSender("test", send)
    sender.offer("a")
    sender._closing = True
    sender.start()
    sender.close(PATIENCE_S)
    assert got == ["a", "b"]


def test_ending_is_bounded() -> None:
    receiver = Receiver()
    sender = BoundedSender("test", receiver.send)
    sender.start()
    sender.offer("a")
    begun_s = time.monotonic()
    sender.close(0.05)
    assert 0.05 <= time.monotonic() - begun_s < PATIENCE_S
    receiver.free.set()


def test_one_that_was_never_started_ends_at_once() -> None:
    sender = BoundedSender("test", Receiver().send)
    sender.offer("a")
    sender.close(PATIENCE_S)
