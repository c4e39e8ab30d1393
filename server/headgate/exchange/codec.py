"""Messages between regions, to and from the bytes of `protos/headgate/v1/exchange.proto`. Pure.

Bytes that are no such message, columns of different lengths and batches that hold too much raise BadRequest. The
receiver judges the numbers themselves.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import Final

from google.protobuf.message import DecodeError

from headgate.errors import BadRequest
from headgate.exchange.fill import MAX_FILL_BYTES
from headgate.exchange.hello import Hello, Versions, Welcome, check_names, shown
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.v1 import exchange_pb2 as wire

_SERVICE: Final = wire.DESCRIPTOR.services_by_name["Exchange"]
METHOD: Final = f"/{_SERVICE.full_name}/{_SERVICE.methods[0].name}"

MAX_ENTRIES: Final = 5_000
"""Most entries of one batch, both kinds together: some 250 KB, and a few milliseconds of the loop on either side."""

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of one message. Entries with keys of 800 bytes fill it before they are too many."""


# The sender's side


def encode_hello(hello: Hello) -> bytes:
    return wire.FromSender(
        hello=wire.SenderHello(
            region=hello.region,
            to_region=hello.to_region,
            lowest_version=hello.versions.lowest,
            highest_version=hello.versions.highest,
            regions=hello.regions,
            software=hello.software,
        )
    ).SerializeToString()


def encode_batch(batch: Batch) -> bytes:
    """Raises BadRequest for one that no peer would take."""
    _check_count(len(batch.entries) + len(batch.returned))
    _check_fill(batch.fill_wanted)
    try:
        message = wire.Batch(
            number=batch.number,
            time_ms=batch.time_ms,
            entries=_columns(batch.entries),
            returned=_columns(batch.returned),
            fill_wanted=batch.fill_wanted,
            filled=batch.filled,
            beat_ms=batch.beat_ms,
            heard_beat_ms=batch.heard_beat_ms,
            quota=wire.Quota.FromString(batch.quota) if batch.quota is not None else None,
        )
    except (ValueError, TypeError) as error:
        raise BadRequest(f"a batch with a number that is no whole one from 0 to 2^64: {error}") from error
    data = wire.FromSender(batch=message).SerializeToString()
    if len(data) > MAX_BATCH_BYTES:
        raise BadRequest(f"a batch of {len(data)} bytes: at most {MAX_BATCH_BYTES} are accepted")
    return data


def decode_from_sender(data: bytes) -> Hello | Batch:
    """Decode a sender's message: a hello or a batch."""
    message = wire.FromSender()
    _parse(message, data)
    match message.WhichOneof("kind"):
        case "hello":
            return _hello(message.hello)
        case "batch":
            return _batch(message.batch)
    raise BadRequest("neither a hello nor a batch")


def _hello(message: wire.SenderHello) -> Hello:
    versions = Versions(message.lowest_version, message.highest_version)
    hello = Hello(message.region, message.to_region, versions, tuple(message.regions), shown(message.software))
    check_names(hello)
    return hello


def _batch(message: wire.Batch) -> Batch:
    _check_count(len(message.entries.key) + len(message.returned.key))
    _check_fill(message.fill_wanted)
    _check_fill(message.filled)
    return Batch(
        message.number,
        message.time_ms,
        _entries(message.entries),
        _entries(message.returned),
        message.fill_wanted,
        message.filled,
        message.beat_ms,
        message.heard_beat_ms,
        message.quota.SerializeToString() if message.HasField("quota") else None,
    )


# The receiver's side


def encode_welcome(welcome: Welcome) -> bytes:
    return wire.FromReceiver(
        hello=wire.ReceiverHello(
            version=welcome.version, region=welcome.region, regions=welcome.regions, software=welcome.software
        )
    ).SerializeToString()


def encode_ack(ack: Ack) -> bytes:
    quota = wire.QuotaMark.FromString(ack.quota) if ack.quota else None
    return wire.FromReceiver(ack=wire.Ack(number=ack.number, refused=ack.refused, quota=quota)).SerializeToString()


def decode_from_receiver(data: bytes) -> Welcome | Ack:
    """Decode a receiver's message: a welcome or an acknowledgement."""
    message = wire.FromReceiver()
    _parse(message, data)
    match message.WhichOneof("kind"):
        case "hello":
            return _welcome(message.hello)
        case "ack":
            return Ack(message.ack.number, message.ack.refused, message.ack.quota.SerializeToString())
    raise BadRequest("neither a hello nor an acknowledgement")


def _welcome(message: wire.ReceiverHello) -> Welcome:
    welcome = Welcome(message.version, message.region, tuple(message.regions), shown(message.software))
    check_names(welcome)
    return welcome


# Both


def _parse(message: wire.FromSender | wire.FromReceiver, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadRequest(f"not a message of {_SERVICE.full_name}: {error}") from error


def _check_count(count: int) -> None:
    if count > MAX_ENTRIES:
        raise BadRequest(f"a batch of {count} entries: at most {MAX_ENTRIES} are accepted")


def _check_fill(marks: bytes) -> None:
    if len(marks) > MAX_FILL_BYTES:
        raise BadRequest(f"marks of a fill of {len(marks)} bytes: at most {MAX_FILL_BYTES} are accepted")


def _columns(entries: Sequence[Entry]) -> wire.Entries | None:
    if not entries:
        return None
    key, window_ms, sequence, current, previous, reset, refunded, previous_refunded = zip(*entries, strict=True)
    given_back = any(refunded) or any(previous_refunded)
    return wire.Entries(
        key=key,
        window_ms=window_ms,
        sequence=sequence,
        current=current,
        previous=previous,
        reset=reset if any(reset) else (),
        current_refunded=refunded if given_back else (),
        previous_refunded=previous_refunded if given_back else (),
    )


def _entries(columns: wire.Entries) -> tuple[Entry, ...]:
    # An older peer has no such columns, and a newer one leaves them out where no key was reset, nothing given back.
    zeros = [0] * len(columns.key)
    refunded = columns.current_refunded or zeros, columns.previous_refunded or zeros
    numbers = (
        columns.window_ms, columns.sequence, columns.current, columns.previous, columns.reset or zeros, *refunded
    )  # fmt: skip
    lengths = [len(columns.key), *map(len, numbers)]
    if len(set(lengths)) != 1:
        raise BadRequest(f"columns of different lengths: {', '.join(map(str, lengths))}")
    return tuple(starmap(Entry, zip(columns.key, *numbers, strict=True)))
