"""Blocks: what a segment of the decision log is made of. Each stands for itself.

A block is a magic, its length, a checksum, and a compressed body. Decisions are stored by column, so that a thousand
of them are packed by a few calls and compress to a fraction; names are stored once per block. A block that was cut by a
crash, or harmed, is recognised as such, and takes nothing but itself along.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from headgate.decision_log.batch import DecisionBatch, RecordFilter, batch_from_bytes
from headgate.decision_log.index import DECISIONS, EVENTS, BlockFacts, facts_of_decisions, facts_of_events
from headgate.decision_log.json_lines import event_from_json, event_to_json
from headgate.decision_log.schema import Entry, Event, NodeRun, checked_parts

MAGIC: Final = b"HGD1"
HEAD: Final = struct.Struct("<4sII")
"""Magic, length of the compressed body, its CRC-32."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""No block is larger; a length beyond it is not one of ours."""
LEVEL: Final = 1
"""zlib's fastest: columns compress well at any level, and this one costs the least of the machine."""

_SIZE: Final = struct.Struct("<I")


class BadBlock(Exception):
    """Not a block, or not a whole one."""


def encode_decisions(batch: DecisionBatch, source: NodeRun) -> bytes:
    """A block of records."""
    head = json.dumps({"count": batch.count, "source": source._asdict(), "names": batch.tables}).encode()
    return _block(b"".join([DECISIONS, _SIZE.pack(len(head)), head, *batch.to_bytes()]))


def encode_events(events: Iterable[Event]) -> bytes:
    """A block of events, one JSON line each."""
    return _block(EVENTS + b"\n".join([json.dumps(event_to_json(event)).encode() for event in events]))


def _block(body: bytes) -> bytes:
    packed = zlib.compress(body, LEVEL)
    return HEAD.pack(MAGIC, len(packed), zlib.crc32(packed)) + packed


def decode(data: bytes, position: int) -> tuple[bytes, int]:
    """The body of the block at `position`, and where the next one begins. Raises BadBlock."""
    end = position + HEAD.size
    if len(data) < end:
        raise BadBlock("a block was cut off")
    magic, length, checksum = HEAD.unpack_from(data, position)
    if magic != MAGIC or length > MAX_BODY_BYTES:
        raise BadBlock("not a block")
    packed = data[end : end + length]
    if len(packed) < length:
        raise BadBlock("a block was cut off")
    if zlib.crc32(packed) != checksum:
        raise BadBlock("a block's checksum does not fit")
    return _inflated(packed), end + length


def _inflated(packed: bytes) -> bytes:
    """Raises BadBlock for what is not compressed, or becomes larger than any block is."""
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(packed, MAX_BODY_BYTES)
    except zlib.error:
        raise BadBlock("a block is not compressed as blocks are") from None
    if not inflater.eof:
        raise BadBlock("a block is larger than any is")
    return body


def entries_of(body: bytes, want: RecordFilter | None = None) -> list[Entry]:
    """The entries of a block's body: all, or all events and the decisions that are wanted. Raises BadBlock."""
    with _reading():
        if body[:1] == DECISIONS:
            batch, source = _decisions(body)
            return list(batch.records(source, None if want is None else want.rows(batch)))
        # Another kind is a newer version's, and no concern of this one.
        return list(_events(body)) if body[:1] == EVENTS else []


def facts_of(body: bytes) -> BlockFacts | None:
    """The facts of a block for an index; None for a newer version's kind. Raises BadBlock."""
    with _reading():
        if body[:1] == DECISIONS:
            return facts_of_decisions(_decisions(body)[0])
        return facts_of_events(_events(body)) if body[:1] == EVENTS else None


@contextmanager
def _reading() -> Iterator[None]:
    """Raises BadBlock for a body that is none, whatever is wrong with it: its checksum says who wrote it, not what."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error) as error:
        raise BadBlock(f"a block holds something else: {type(error).__name__}") from None


def _events(body: bytes) -> Iterator[Event]:
    for line in body[1:].splitlines():
        yield event_from_json(json.loads(line))


def _decisions(body: bytes) -> tuple[DecisionBatch, NodeRun]:
    start = 1 + _SIZE.size
    (size,) = _SIZE.unpack_from(body, 1)
    head = json.loads(body[start : start + size])
    source = checked_parts(NodeRun(**head["source"]))
    return batch_from_bytes(body[start + size :], head["count"], head["names"]), source
