"""Counters that a call reports, and their order: soon is 25 ms, later is 250 ms, refund is 500 ms, calm is 2 s.

A history is a row of steps, each at a time in ms. `0 soon a 25` has counter a reported soon, and says that it is due
at 25; `-` instead means that it was to be reported by then anyway. `9 sent a` reports it by other means. `26 take a b`
takes what is due or, but for `refund`, in the last fifth of its delay; `take1` with room for one only, `all` whether or
not it is due. `9 next 25 250` says when the first of each queue is due.
"""

import re

import pytest
from headgate.region.flush_queues import EARLY, FlushQueues
from headgate.region.urgency import FLUSH_CALM_S, FLUSH_LATER_S, FLUSH_SOON_S, Urgency
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import NOW_MS, QuietShard, case, window_limit

START_S = 1_000.0
MUCH_ROOM = 99


class Played:
    """Queues, and the counters that were ever put in."""

    def __init__(self) -> None:
        self.queues = FlushQueues()
        self.counters: dict[str, SharedWindow] = {}

    def counter(self, key: str) -> SharedWindow:
        if key not in self.counters:
            name = key.encode()
            self.counters[key] = SharedWindow(name, name, b"run.0", QuietShard(), window_limit(), NOW_MS)
        return self.counters[key]

    def play(self, step: str) -> None:
        at, verb, *words = step.split()
        now_s = _at_s(at)
        if verb.upper() in Urgency.__members__:
            key, due = words
            due_s = self.queues.add(self.counter(key), Urgency[verb.upper()], now_s)
            assert due_s == (None if due == "-" else pytest.approx(_at_s(due))), step
        elif verb in ("at", "never"):
            key, due = words
            self.counter(key).asked = 1  # somebody waits for it
            assert self.queues.add_at(self.counter(key), _at_s(due)) == (verb == "at"), step
        elif verb == "sent":
            self.counter(words[0]).flush_due_s = 0.0  # as `sent` does when a report goes out
        elif verb == "next":
            assert list(self.queues.next_due_s()) == [pytest.approx(_at_s(due)) for due in words], step
        else:
            assert self._take(now_s, verb) == words, step

    def _take(self, now_s: float, verb: str) -> list[str]:
        room = re.search(r"\d+", verb)
        taken = list(self.queues.take(int(room[0]) if room else MUCH_ROOM, now_s, everything=verb.startswith("all")))
        for counter in taken:
            counter.flush_due_s = 0.0  # it is reported now
        return [counter.key.decode() for counter in taken]


def _at_s(ms: str) -> float:
    return START_S + int(ms) / 1000


@pytest.mark.parametrize(
    "history",
    [
        case("0 next; 0 take", id="nothing"),
        case("0 soon a 25; 19 take; 21 take a", id="soon: after 25 ms, or 20 if a call is made anyway"),
        case("0 later a 250; 199 take; 201 take a", id="later: after 250 ms, or 200 if a call is made anyway"),
        case("0 calm a 2000; 1599 take; 1601 take a", id="calm: after 2 s, or 1.6 s if a call is made anyway"),
        case("0 at a 500; 494 take; 496 take a", id="at a time of its own: 5 ms sooner if a call is made anyway"),
        case("0 at a 500; 9 later a 259; 260 take a; 999 take", id="at a time, then later: later"),
        case("0 later a 250; 9 never a 500; 260 take a", id="later, then at a time after it: later"),
        case("0 calm a 2000; 9 at a 500; 510 take a; 9999 take", id="calm, then at a time: then"),
        case("0 calm a 2000; 300 calm b 2300; 500 calm c 2500; 2001 take a b", id="what is nearly due goes along"),
        case("0 calm a 2000; 9 calm a -; 2001 take a", id="calm twice: the first counts"),
        case("0 calm a 2000; 9 later a 259; 260 take a; 9999 take", id="calm, then later: later, and not again"),
        case("0 later a 250; 9 calm a -; 260 take a; 9999 take", id="later, then calm: later"),
        case("0 calm a 2000; 1900 later a -; 2001 take a", id="later would be after calm: it stays"),
        case("0 soon a 25; 26 take a; 99 take", id="once"),
        case("0 soon a 25; 9 soon a -; 26 take a", id="soon twice: the first counts"),
        case("0 soon a 25; 9 later a -; 26 take a; 999 take", id="soon, then later: soon"),
        case("0 later a 250; 9 soon a 34; 35 take a; 999 take", id="later, then soon: soon, and not again"),
        case("0 later a 250; 240 soon a -; 251 take a", id="soon would be after later: it stays"),
        case("0 soon a 25; 1 soon b 26; 30 take a b", id="in the order in which they are due"),
        case("0 later a 250; 230 soon b 255; 260 take b a", id="soon goes before later"),
        case("0 soon a 25; 0 soon b 25; 30 take1 a; 30 take1 b", id="no more than there is room for"),
        case("0 soon a 25; 30 take0; 30 take a", id="no room: it stays due"),
        case("0 soon a 25; 9 sent a; 9 next; 30 take", id="reported meanwhile: passed over"),
        case("0 soon a 25; 1 sent a; 1 soon b 26; 30 take1 b", id="what is passed over takes no room"),
        case("0 soon a 25; 9 sent a; 20 soon a 45; 39 take; 46 take a", id="reported, and due again"),
        case("0 soon a 25; 0 later b 250; 0 at c 500; 0 calm d 2000; 0 all c a b d", id="everything, at the end"),
        case("0 soon a 25; 0 later b 250; 0 all1 a; 0 all1 b", id="everything, as far as there is room"),
        case("0 soon a 25; 0 later b 250; 0 at c 500; 0 calm d 2000; 0 next 500 25 250 2000", id="each queue"),
        case("0 soon a 25; 9 sent a; 9 soon b 34; 9 next 34", id="the next that still counts"),
    ],
)
def test_what_is_due(history: str) -> None:
    played = Played()
    for step in history.split("; "):
        played.play(step)


def test_entries_that_were_overtaken_are_let_go() -> None:
    """Else a key that is busy for days would fill the queues."""
    played = Played()
    counter = played.counter("a")
    for number in range(1_000):
        assert played.queues.add(counter, Urgency.SOON, START_S + number) is not None
        counter.flush_due_s = 0.0
        list(played.queues.next_due_s())
        assert len(played.queues) == 0


def test_the_table_is_written_for_these_delays() -> None:
    assert (FLUSH_SOON_S, FLUSH_LATER_S, FLUSH_CALM_S, EARLY) == (0.025, 0.250, 2.0, 0.2)
