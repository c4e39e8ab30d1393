"""Batches, hellos and acknowledgements to bytes and back."""

import pytest
from headgate.errors import BadRequest
from headgate.exchange import codec
from headgate.exchange.hello import MAX_REGIONS, Hello, Versions, Welcome
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.v1 import exchange_pb2 as wire
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.exchange.two_regions import entries

NUMBERS = st.integers(0, 2**64 - 1)
OFTEN_0 = st.just(0) | NUMBERS
ENTRY = st.builds(Entry, st.binary(max_size=80), NUMBERS, NUMBERS, NUMBERS, NUMBERS, OFTEN_0, OFTEN_0, OFTEN_0)
ENTRIES = st.lists(ENTRY, max_size=30).map(tuple)
QUOTAS = st.binary(max_size=8).map(lambda tag: wire.Quota(tag=tag).SerializeToString())
MARKS = st.builds(wire.QuotaMark, run=NUMBERS, number=NUMBERS).map(wire.QuotaMark.SerializeToString)
BATCHES = st.builds(
    Batch, NUMBERS, NUMBERS, ENTRIES, ENTRIES, st.binary(), st.binary(), NUMBERS, NUMBERS, st.none() | QUOTAS
)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True)


@given(BATCHES)
def test_a_batch_comes_back_as_it_was(batch: Batch) -> None:
    assert codec.decode_from_sender(codec.encode_batch(batch)) == batch


@given(st.builds(Ack, NUMBERS, NUMBERS, st.just(b"") | MARKS))
def test_an_acknowledgement_comes_back_as_it_was(ack: Ack) -> None:
    assert codec.decode_from_receiver(codec.encode_ack(ack)) == ack


@given(NAMES, NAMES, st.lists(NAMES, max_size=5).map(tuple), st.integers(0, 2**32 - 1))
def test_hellos_come_back_as_they_were(region: str, to: str, regions: tuple[str, ...], version: int) -> None:
    hello = Hello(region, to, Versions(1, version), regions, "1.2.3")
    assert codec.decode_from_sender(codec.encode_hello(hello)) == hello
    welcome = Welcome(version, region, regions, "1.2.3")
    assert codec.decode_from_receiver(codec.encode_welcome(welcome)) == welcome


def test_an_entry_has_at_most_sixty_bytes_on_the_wire() -> None:
    """With a key of 35, a window of a minute as of 2026 and counts of up to two million."""
    batch = Batch(1, 1, tuple(entry._replace(current=2_000_000, previous=2_000_000) for entry in entries(5_000)))
    assert len(codec.encode_batch(batch)) / 5_000 <= 60


@pytest.mark.parametrize("data", [b"\xff", b"", b"\x12\x05ab", b"plain text"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        codec.decode_from_sender(data)
    with pytest.raises(BadRequest):
        codec.decode_from_receiver(data)


@pytest.mark.parametrize("column", ["key", "window_ms", "sequence", "current", "previous"])
@pytest.mark.parametrize("of", ["entries", "returned"])
def test_columns_of_different_lengths_are_refused(column: str, of: str) -> None:
    columns = wire.Entries(key=[b"a", b"b"], window_ms=[1, 1], sequence=[1, 1], current=[1, 1], previous=[1, 1])
    del getattr(columns, column)[1]
    batch = wire.Batch()
    getattr(batch, of).CopyFrom(columns)
    data = wire.FromSender(batch=batch).SerializeToString()
    with pytest.raises(BadRequest, match=r"different lengths: .*1"):
        codec.decode_from_sender(data)


def test_a_batch_that_nobody_takes_is_not_even_written() -> None:
    with pytest.raises(BadRequest, match="5001 entries: at most 5000"):
        codec.encode_batch(Batch(1, 1, entries(5_000), entries(1)))
    with pytest.raises(BadRequest, match="bytes: at most 4194304"):
        codec.encode_batch(Batch(1, 1, entries(5, codec.MAX_BATCH_BYTES // 5)))
    for wrong in (-1, 2**64, 1.5):
        with pytest.raises(BadRequest, match="no whole one"):
            codec.encode_batch(Batch(1, 1, (Entry(b"k", 1, 1, wrong, 1),)))  # type: ignore[arg-type]


def test_a_batch_that_holds_too_many_is_refused_before_it_is_unpacked() -> None:
    columns = wire.Entries(key=[b""] * 5_001)
    with pytest.raises(BadRequest, match="5001 entries: at most 5000"):
        codec.decode_from_sender(wire.FromSender(batch=wire.Batch(returned=columns)).SerializeToString())


@pytest.mark.parametrize(
    "hello",
    [
        Hello("", "us", Versions(1, 1), (), ""),
        Hello("eu", "u s", Versions(1, 1), (), ""),
        Hello("eu", "us", Versions(1, 1), ("a\n",), ""),
        Hello("e" * 64, "us", Versions(1, 1), (), ""),
        Hello("eu", "us", Versions(1, 1), ("a",) * (MAX_REGIONS + 1), ""),
    ],
)
def test_a_hello_with_names_that_are_none_is_refused(hello: Hello) -> None:
    with pytest.raises(BadRequest, match="a hello with"):
        codec.decode_from_sender(codec.encode_hello(hello))


def test_the_softwares_version_is_made_harmless() -> None:
    decoded = codec.decode_from_sender(codec.encode_hello(Hello("eu", "us", Versions(1, 1), (), "1\x1b[31m\n" * 20)))
    assert isinstance(decoded, Hello)
    assert decoded.software == ("1?[31m?" * 20)[:64]
