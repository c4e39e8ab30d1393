"""The client's side of xDS streams, as tables of what comes in and what goes out, at given times."""

from collections.abc import Sequence

import pytest
from headgate.xds.stream import GRACE_S, Protocol, XdsRequest, XdsResponse, XdsStream

A, B, C = b"rules of a", b"rules of b", b"rules of c"
BOTH: tuple[Protocol, ...] = ("sotw", "delta")


class Client:
    """A stream with its store: refuses what a test names, and writes down what it was given."""

    def __init__(self, protocol: Protocol = "sotw") -> None:
        self.stream = XdsStream(protocol)
        self.sets: list[dict[str, bytes]] = []
        self.bad: set[bytes] = set()

    def step(self, now_s: float) -> list[XdsRequest]:
        offered = self.stream.offered(now_s)
        if offered is not None:
            self.sets.append(dict(offered))
            self.stream.judged([f"xds/{name}:1: bad" for name, text in offered.items() if text in self.bad], now_s)
        return self.stream.requests(now_s)

    def connect(self, now_s: float) -> list[XdsRequest]:
        self.stream.connected(now_s)
        return self.step(now_s)

    def receive(self, now_s: float, nonce: str, *, removed: Sequence[str] = (), **resources: bytes) -> list[XdsRequest]:
        self.stream.received(XdsResponse(nonce, resources, version=f"v{nonce}", removed=removed), now_s)
        return self.step(now_s)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_stream_begins_empty_and_nothing_yet_is_waited_for(protocol: Protocol) -> None:
    client = Client(protocol)
    assert client.connect(0) == [XdsRequest(first=True)]
    assert client.stream.wakes_at() is None
    assert client.step(1000) == []
    assert client.sets == []


@pytest.mark.parametrize("protocol", BOTH)
def test_a_good_set_is_handed_over_in_order_and_acknowledged(protocol: Protocol) -> None:
    client = Client(protocol)
    client.connect(0)
    assert client.receive(1, "1", b=B, a=A) == [XdsRequest(version="v1", nonce="1")]
    assert [list(found) for found in client.sets] == [["a", "b"]]


@pytest.mark.parametrize("protocol", BOTH)
def test_every_stream_begins_with_empty_version_and_nonce(protocol: Protocol) -> None:
    client = Client(protocol)
    client.connect(0)
    client.receive(1, "7", a=A)
    assert client.connect(2) == [XdsRequest(first=True)]
    client.bad = {B}
    client.receive(3, "1", a=B)
    # The version of another server process is not told to this one.
    assert client.step(4) == [XdsRequest(version="", nonce="1", reason="xds/a:1: bad")]


@pytest.mark.parametrize("protocol", BOTH)
def test_the_same_set_again_is_acknowledged_and_nothing_else(protocol: Protocol) -> None:
    client = Client(protocol)
    client.connect(0)
    client.receive(1, "1", a=A, b=B)
    assert client.receive(2, "2", b=B, a=A) == [XdsRequest(version="v2", nonce="2")]
    assert len(client.sets) == 1


@pytest.mark.parametrize("protocol", BOTH)
def test_a_refusal_waits_longer_each_time_and_the_refused_set_is_read_once(protocol: Protocol) -> None:
    client = Client(protocol)
    client.bad = {B}
    client.connect(0)
    client.receive(0, "good", a=A)
    now, waits = 0.0, []
    for number in range(8):
        assert client.receive(now, str(number), a=A, b=B) == []
        due = client.stream.wakes_at()
        assert due is not None
        assert client.step(due - 0.001) == []
        assert client.step(due) == [XdsRequest(version="vgood", nonce=str(number), reason="xds/b:1: bad")]
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    # The good domain came into force at once with the refused one.
    assert client.sets == [{"a": A}, {"a": A, "b": B}]
    # Mended, and the next refusal waits a second again.
    assert client.receive(now, "mended", a=A, b=C) == [XdsRequest(version="vmended", nonce="mended")]
    client.receive(now, "bad", a=A, b=B)
    assert client.stream.wakes_at() == now + 1


def test_only_the_newest_nonce_is_answered() -> None:
    client = Client()
    client.bad = {B}
    client.connect(0)
    assert client.receive(0, "1", a=B) == []
    assert client.receive(0.5, "2", a=A) == [XdsRequest(version="v2", nonce="2")]
    assert client.stream.wakes_at() is None
    assert client.step(100) == []


def test_a_resource_that_can_not_be_read_is_refused_and_the_others_serve() -> None:
    client = Client()
    client.connect(0)
    client.stream.received(XdsResponse("1", {"a": A}, version="v1", problems=["xds/b: no such message"]), 0)
    assert client.step(0) == []
    assert client.sets == [{"a": A}]
    assert client.step(1) == [XdsRequest(nonce="1", reason="xds/b: no such message")]


@pytest.mark.parametrize("protocol", BOTH)
def test_an_empty_set_is_a_set(protocol: Protocol) -> None:
    client = Client(protocol)
    client.connect(0)
    assert client.receive(1, "1") == [XdsRequest(version="v1", nonce="1")]
    assert client.sets == [{}]


def test_the_last_limit_deleted_empties_the_set_at_once() -> None:
    client = Client()
    client.connect(0)
    client.receive(1, "1", a=A)
    assert client.receive(2, "2") == [XdsRequest(version="v2", nonce="2")]
    assert client.sets == [{"a": A}, {}]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_young_stream_holds_what_the_former_had_shown(protocol: Protocol) -> None:
    client = Client(protocol)
    client.connect(0)
    client.receive(1, "1", a=A, b=B)
    client.connect(100)
    # Partial pushes change nothing that they do not name.
    assert client.receive(101, "1", b=B) == [XdsRequest(version="v1", nonce="1")]
    assert client.receive(102, "2", b=C)
    assert client.stream.names_held == ["a"]
    assert client.receive(103, "3", a=A, b=C)
    assert client.stream.wakes_at() is None
    assert client.sets == [{"a": A, "b": B}, {"a": A, "b": C}]


@pytest.mark.parametrize("protocol", BOTH)
def test_the_first_stream_of_a_process_holds_what_an_earlier_process_had_saved(protocol: Protocol) -> None:
    client = Client(protocol)
    client.stream.restored({"a": A, "b": B})
    client.connect(0)
    client.receive(1, "1", a=C)
    assert (client.sets, client.stream.names_held) == ([{"a": C, "b": B}], ["b"])
    client.step(GRACE_S)
    assert client.sets[1:] == [{"a": C}]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_set_like_the_saved_one_is_handed_over(protocol: Protocol) -> None:
    """The store must hear that the server has answered."""
    client = Client(protocol)
    client.stream.restored({"a": A})
    client.connect(0)
    client.receive(1, "1", a=A)
    assert client.sets == [{"a": A}]


@pytest.mark.parametrize("protocol", BOTH)
def test_what_is_held_and_never_shown_goes_after_the_grace(protocol: Protocol) -> None:
    client = Client(protocol)
    client.connect(0)
    client.receive(1, "1", a=A, b=B)
    client.connect(100)
    client.receive(101, "1", b=B)
    assert client.stream.wakes_at() == 100 + GRACE_S
    client.step(100 + GRACE_S - 0.001)
    assert len(client.sets) == 1
    assert client.step(100 + GRACE_S) == []
    assert client.sets[-1] == {"b": B}
    assert client.stream.wakes_at() is None


def test_what_this_stream_has_shown_and_dropped_goes_at_once() -> None:
    client = Client()
    client.connect(0)
    client.receive(1, "1", a=A, b=B)
    client.connect(100)
    client.receive(101, "1", a=A, b=B)
    client.receive(102, "2", b=B)
    assert client.sets == [{"a": A, "b": B}, {"b": B}]


def test_a_set_that_is_silent_on_a_new_stream_stays_for_ever() -> None:
    """A server that has nothing to say yet says nothing, and no limit goes."""
    client = Client()
    client.connect(0)
    client.receive(1, "1", a=A)
    client.connect(100)
    assert client.step(1000) == []
    assert client.sets == [{"a": A}]


def test_delta_changes_what_it_names_and_removes_what_it_says() -> None:
    client = Client("delta")
    client.connect(0)
    client.receive(1, "1", a=A, b=B)
    client.receive(2, "2", c=C)
    client.receive(3, "3", removed=["a"], b=C)
    assert client.sets == [{"a": A, "b": B}, {"a": A, "b": B, "c": C}, {"b": C, "c": C}]
    # Said to be gone on a young stream: not held.
    client.connect(10)
    client.receive(11, "1", removed=["b"])
    assert client.sets[-1] == {"c": C}


def test_streams_that_end_early_keep_what_was_held() -> None:
    client = Client()
    client.connect(0)
    client.receive(1, "1", a=A, b=B)
    client.connect(10)
    client.receive(11, "1", b=B)
    client.connect(12)
    client.receive(13, "1", b=B)
    assert client.stream.names_held == ["a"]
    assert client.stream.wakes_at() == 12 + GRACE_S
