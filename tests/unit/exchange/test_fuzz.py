"""Anything that a peer could send: whatever it is, it is taken in within the bounds, or refused with a reason.

`make test` tries some, `make verify` many more.
"""

import asyncio
from typing import Final

import pytest
from headgate.errors import BadRequest, NotReady
from headgate.exchange import codec
from headgate.exchange.hello import Hello, Welcome
from headgate.exchange.judging import MOST_COUNTED
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.origin.interface import OriginError
from headgate.origin.names import exchange_key
from headgate.v1 import exchange_pb2 as wire
from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import check, examples
from tests.unit.exchange.two_origins import SEQUENCE, START_MS, WINDOW_MS, Region

KEYS: Final = (b"k", b"another", b"own", b"own too")
"""The last two are not shared."""
OWN: Final = 7
"""What the region itself has counted on each of them."""
LONG: Final = 5_000
"""Examples of `make verify`."""

NUMBERS = st.integers(0, 2**64 - 1)
NEAR = st.sampled_from([0, 1, 5, 2**32, 2**44 - 1, 2**44, 2**53, 2**53 + 1, 2**64 - 1])
WINDOWS = st.sampled_from([WINDOW_MS, WINDOW_MS, 1_000, 0, 7, 2**63, 10 * 365 * 86_400_000])
SEQUENCES = st.sampled_from([SEQUENCE, SEQUENCE - 1, SEQUENCE + 1, SEQUENCE + 2, 0, 2**64 - 1])
RESETS = st.sampled_from([0, 0, 0, 1, START_MS, START_MS + 60_000, START_MS + 60_001, 2**53, 2**64 - 1])
NAMES = st.sampled_from([exchange_key(key, key) for key in KEYS]) | st.binary(max_size=40)
ANY_ENTRY = st.builds(Entry, NAMES, WINDOWS, SEQUENCES, NEAR, NEAR, RESETS, NEAR, NEAR)
COUNTS = st.sampled_from([0, 1, 5, 2**44 - 1, 2**44, 2**44 + 1, 2**53])
LIKELY_ENTRY = st.builds(
    Entry, NAMES, st.just(WINDOW_MS), st.sampled_from([SEQUENCE - 1, SEQUENCE]), COUNTS, COUNTS, *[st.just(0)] * 3
)
"""One that an honest region might have sent, were it not for the count: of any entries few make sense."""
ENTRY = ANY_ENTRY | LIKELY_ENTRY
ENTRIES = st.lists(ENTRY, max_size=12).map(tuple)
FILLS = st.just(b"") | st.binary(min_size=8, max_size=8) | st.binary(max_size=40)
BATCHES = st.builds(Batch, NUMBERS, NUMBERS, ENTRIES, ENTRIES, FILLS, FILLS, NUMBERS, NUMBERS, st.none())


def broken(data: bytes, at: int, byte: int, cut: int) -> bytes:
    """A message with one byte changed, and its end cut off."""
    changed = bytearray(data)
    if changed:
        changed[at % len(changed)] = byte
    return bytes(changed[: len(changed) - cut % (len(changed) + 1)])


BYTES = st.binary(max_size=200) | st.builds(
    broken, BATCHES.map(codec.encode_batch), st.integers(0, 9_999), st.integers(0, 255), st.integers(0, 3)
)


def any_message_is_read_or_refused(data: bytes) -> None:
    for decode in (codec.decode_from_sender, codec.decode_from_receiver):
        reason, message = "", None
        try:
            message = decode(data)
        except BadRequest as error:
            reason = str(error)
        assert isinstance(message, Hello | Batch | Ack | Welcome) or 0 < len(reason) < 1_000


def whatever_is_said_stays_within_bounds(count: int, batches: int) -> None:
    """Batches of any content. Something has to count of some, or all of this would show nothing."""
    counted: list[int] = []

    def within(said: list[Batch]) -> None:
        counted.append(asyncio.run(_said(said)))

    check(count, within, said=st.lists(BATCHES, min_size=1, max_size=batches))
    assert max(counted) > OWN


async def _said(batches: list[Batch]) -> int:
    """Return the most that counts of the peers."""
    region = Region("eu", "us", "ap", new_keys_bytes=1_000_000)
    for key in KEYS:
        region.count(OWN, key)
    # A shard that nobody has looked at yet asks for nothing, so nothing of this region may come back.
    for number, batch in enumerate(batches):
        sent = codec.decode_from_sender(codec.encode_batch(batch))
        assert isinstance(sent, Batch)
        try:
            ack = await region.receiver.receive(("us", "ap")[number % 2], sent)
        except (NotReady, OriginError):
            continue
        assert (ack.number, ack.refused <= len(batch.entries) + len(batch.returned)) == (batch.number, True)
    reset = any(entry.reset for batch in batches for entry in batch.entries)
    for key in KEYS:
        known = region.known(key)
        assert known.foreign <= 2 * MOST_COUNTED
        if key.startswith(b"own"):
            assert (known.region_total, known.foreign) == (OWN, 0), "what is not shared is not moved"
        elif not reset:
            assert known.region_total == OWN
    return max(region.known(key).foreign for key in KEYS)


@examples(300)
@given(BYTES)
def test_any_message_is_read_or_refused(data: bytes) -> None:
    any_message_is_read_or_refused(data)


@pytest.mark.parametrize(("count", "batches"), [(150, 4), pytest.param(LONG // 4, 8, marks=pytest.mark.long)])
def test_whatever_is_said_stays_within_bounds(count: int, batches: int) -> None:
    whatever_is_said_stays_within_bounds(count, batches)


@pytest.mark.long
@examples(LONG)
@given(BYTES)
def test_any_of_many_messages_is_read_or_refused(data: bytes) -> None:
    any_message_is_read_or_refused(data)


def test_the_bytes_are_those_of_the_wire() -> None:
    """Else everything above would be refused before it is read."""
    data = codec.encode_batch(Batch(1, 2, (Entry(b":k", WINDOW_MS, SEQUENCE, 5, 3),)))
    assert wire.FromSender.FromString(data).batch.entries.key == [b":k"]
