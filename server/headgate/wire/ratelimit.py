"""RateLimitRequest and RateLimitResponse: bytes to plain values and back.

Requests are read once, by hand if they are of the usual shape and else by protobuf, and checked here;
everything behind this module may rely on a non-empty domain, at least one descriptor, non-empty keys, known units
and costs that fit the wire. Responses are written by hand, from parts that are
encoded once per limit: the same bytes that protobuf would write (a test compares
them), at a fraction of the time, because a response is made for every request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from headgate_client.unmet import Unmet, encode_unmet
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from headgate.errors import BadRequest
from headgate.limiter.limit import MAX_UINT32, Limit, Unit

OVERRIDE_UNITS: Final = {
    1: Unit.SECOND,
    2: Unit.MINUTE,
    3: Unit.HOUR,
    4: Unit.DAY,
    5: Unit.MONTH,
    6: Unit.YEAR,
}
"""Units that a per-request limit may name. Envoy's enum for it has no week."""


class Descriptor:
    """One descriptor of a request: its entries, its cost, and, if it brings one, the limit that overrides the rules."""

    # No named tuple: one is made for every request that was not seen before, and this takes less time to make.
    __slots__ = ("cost", "entries", "names_cost", "override", "refund")

    def __init__(
        self,
        entries: tuple[tuple[str, str], ...],
        cost: int,
        override: Limit | None,
        refund: bool = False,
        names_cost: bool = False,
    ) -> None:
        self.entries = entries
        self.cost = cost
        self.override = override
        self.refund = refund
        """The cost is given back (`is_negative_hits`)."""
        self.names_cost = names_cost
        """The request says what it costs; else it is 1."""


class Request:
    """A request that has passed all checks of `parse_request`."""

    __slots__ = ("descriptors", "domain")

    def __init__(self, domain: str, descriptors: tuple[Descriptor, ...]) -> None:
        self.domain = domain
        self.descriptors = descriptors


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Bounds on one request: what it costs a shard, and this process, follows from it."""

    max_descriptors: int = 32
    """Each may charge two limits, a rule's and the request's own; a call to a shard carries at most 64."""
    max_entries: int = 32
    """Entries of one descriptor: rules have as many levels."""


def parse_request(payload: bytes, bounds: RequestBounds = RequestBounds()) -> Request:  # noqa: B008 - frozen
    """Read and check one request. Raises BadRequest with what is wrong and where."""
    return scan(payload, bounds) or _parse_with_protobuf(payload, bounds)


# The tags of a request: a domain, a descriptor in it, an entry in that, its key and value; hits_addend.
_DOMAIN: Final = 0x0A
_DESCRIPTOR: Final = 0x12
_ENTRY: Final = 0x0A
_KEY: Final = 0x0A
_VALUE: Final = 0x12
_HITS: Final = 0x18
_SHORT: Final = 0x80
"""Lengths and numbers below it are one byte."""
_LONG: Final = 0x4000
"""Lengths below it are two bytes at most."""


def scan(payload: bytes, bounds: RequestBounds) -> Request | None:
    """Read a request as nearly all are: a domain, descriptors of keys with values, perhaps a small cost.

    None: anything else, good or bad, in any other order or with a text of 128 bytes or more; protobuf reads that.
    (tests/unit/wire/test_scan.py holds both equal, whatever the bytes.)
    """
    try:
        length, end = payload[1], len(payload)
        if payload[0] != _DOMAIN or not 0 < length < _SHORT:
            return None
        at = 2 + length
        domain = payload[2:at].decode()
        cost, described, names_cost = 1, [], False
        while at < end:
            tag, length = payload[at], payload[at + 1]
            at += 2
            if tag != _DESCRIPTOR:
                if tag != _HITS or length >= _SHORT or at != end:
                    return None
                cost, names_cost = length or 1, length > 0
                break
            if length >= _SHORT:
                # Two bytes, as for the routes of a gateway; what is longer is not usual.
                length += payload[at] - 1 << 7
                at += 1
                if length >= _LONG:
                    return None
            descriptor_end = at + length
            entries = []
            while at < descriptor_end:
                tag, length = payload[at], payload[at + 1]
                at += 2
                if length >= _SHORT:
                    length += payload[at] - 1 << 7
                    at += 1
                key_at, key_length = at + 2, payload[at + 1]
                key_end = key_at + key_length
                if tag != _ENTRY or length >= _LONG or payload[at] != _KEY or not 0 < key_length < _SHORT:
                    return None
                at += length
                value_length = payload[key_end + 1]
                # The second text ends where the entry does, so both are within it.
                if payload[key_end] != _VALUE or value_length >= _SHORT or key_end + 2 + value_length != at:
                    return None
                entries.append((payload[key_at:key_end].decode(), payload[key_end + 2 : at].decode()))
            if at != descriptor_end or not entries or len(entries) > bounds.max_entries:
                return None
            described.append(tuple(entries))
    except (IndexError, ValueError):
        return None  # it ends too early, or is no text
    if at > end or not 0 < len(described) <= bounds.max_descriptors:
        return None
    return Request(domain, tuple([Descriptor(entries, cost, None, False, names_cost) for entries in described]))


def _parse_with_protobuf(payload: bytes, bounds: RequestBounds) -> Request:
    try:
        message = RateLimitRequest.FromString(payload)
    except DecodeError:
        raise BadRequest("malformed RateLimitRequest: not a valid protobuf message") from None
    if not message.domain:
        raise BadRequest("domain must not be empty")
    if not message.descriptors:
        raise BadRequest("descriptors must not be empty: a request needs at least one")
    if len(message.descriptors) > bounds.max_descriptors:
        raise BadRequest(
            f"{len(message.descriptors)} descriptors: accepted are 1 to {bounds.max_descriptors} (max_descriptors)"
        )
    for index, descriptor in enumerate(message.descriptors):
        if len(descriptor.entries) > bounds.max_entries:
            raise BadRequest(
                f"descriptors[{index}] has {len(descriptor.entries)} entries: accepted are 1 to {bounds.max_entries} "
                "(max_entries)"
            )
    return Request(
        message.domain,
        tuple([_parse_descriptor(d, i, message.hits_addend) for i, d in enumerate(message.descriptors)]),
    )


def _parse_descriptor(message: Any, index: int, request_cost: int) -> Descriptor:
    entries = tuple([(entry.key, entry.value) for entry in message.entries])
    if not entries:
        raise BadRequest(f"descriptors[{index}].entries must not be empty")
    for position, (key, _) in enumerate(entries):
        if not key:
            raise BadRequest(f"descriptors[{index}].entries[{position}].key must not be empty")
    names_own = message.HasField("hits_addend")
    cost = message.hits_addend.value if names_own else request_cost or 1
    if cost > MAX_UINT32:
        raise BadRequest(f"descriptors[{index}].hits_addend is {cost}: accepted are 0 to {MAX_UINT32}")
    override = _parse_override(message.limit, index) if message.HasField("limit") else None
    return Descriptor(entries, cost, override, message.is_negative_hits, names_own or request_cost > 0)


def _parse_override(message: Any, index: int) -> Limit:
    unit = OVERRIDE_UNITS.get(message.unit)
    if unit is None:
        accepted = ", ".join(f"{unit.name} ({number})" for number, unit in OVERRIDE_UNITS.items())
        raise BadRequest(f"descriptors[{index}].limit.unit is {message.unit}: accepted are {accepted}")
    return Limit(message.requests_per_unit, unit)


# The wire's tags: (field number << 3) | wire type.
_OVERALL_CODE = b"\x08"
_STATUSES = b"\x12"
_RESPONSE_HEADERS = b"\x1a"
_RAW_BODY = b"\x2a"
_DYNAMIC_METADATA = b"\x32"
_STATUS_REMAINING: Final = b"\x18"
_STATUS_RESET = b"\x22"
_RESET_SECONDS = b"\x08"
_RESET_NANOS = b"\x10"

CODE_OK: Final = _OVERALL_CODE + b"\x01"
CODE_OVER_LIMIT: Final = _OVERALL_CODE + b"\x02"


def varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits per byte, the lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


# Most numbers of a response are small; these tables (about 1.2 MB) spare their arithmetic.
_SMALL: Final = tuple(varint(number) for number in range(1 << 14))
_MORE_FOLLOWS: Final = tuple(bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(1 << 14))
_NANOS: Final = (b"", *(_RESET_NANOS + varint(ms * 1_000_000) for ms in range(1, 1000)))

MAX_NUMBERS: Final = 4_096
"""The high parts of numbers that are kept as they were written."""

MAX_RESETS: Final = 4_096
"""Resets that are kept as they were written. In any millisecond many answers have the same; then they have others."""


class _Numbers(dict[int, bytes]):
    """Numbers as they were written: a lookup that fills itself, up to a bound."""

    def __missing__(self, number: int) -> bytes:
        if len(self) >= MAX_NUMBERS:
            self.clear()
        self[number] = encoded = varint(number)
        return encoded


_highs: Final = _Numbers()
"""High parts of large numbers, without the 14 lowest bits: what remains of a large limit repeats them many times."""


def _number(number: int) -> bytes:
    return _SMALL[number] if number < 16384 else _MORE_FOLLOWS[number & 16383] + _highs[number >> 14]


class _Resets(dict[int, bytes]):
    """`duration_until_reset` by its milliseconds, with tag and length: a lookup that fills itself, up to a bound."""

    def __missing__(self, reset_ms: int) -> bytes:
        if len(self) >= MAX_RESETS:
            self.clear()
        seconds, ms = divmod(reset_ms, 1000)
        reset = (_RESET_SECONDS + _number(seconds) if seconds else b"") + _NANOS[ms]
        self[reset_ms] = encoded = _STATUS_RESET + _SMALL[len(reset)] + reset
        return encoded


_resets: Final = _Resets()


_BEFORE_STATUS: Final = tuple(_STATUSES + varint(length) for length in range(256))
"""First bytes of a status, by its length: tag and length."""


def _before_status(length: int) -> bytes:
    return _BEFORE_STATUS[length] if length < 256 else _STATUSES + varint(length)


class StatusHead:
    """The part of a descriptor's status that depends on its limit alone, for both codes."""

    __slots__ = ("ok", "over")

    def __init__(self, limit: bytes) -> None:
        self.ok = CODE_OK + limit
        self.over = CODE_OVER_LIMIT + limit


@lru_cache(maxsize=4096)
def _status_head(requests_per_unit: int, unit: int, name: str) -> StatusHead:
    current_limit = RateLimitResponse.RateLimit(
        requests_per_unit=requests_per_unit, unit=RateLimitResponse.RateLimit.Unit.Name(unit), name=name
    )
    data = current_limit.SerializeToString()
    return StatusHead(b"\x12" + varint(len(data)) + data)


def status_head(limit: Limit) -> StatusHead:
    """Encode once per limit what `encode_status` repeats in every answer."""
    # A window of five minutes has no unit on the wire: Envoy leaves the window out of
    # its headers for UNKNOWN, where MINUTE would make it state a wrong one.
    unit = limit.unit if limit.unit_multiplier == 1 else Unit.UNKNOWN
    return _status_head(limit.requests_per_unit, unit, limit.name)


def encode_status(head: bytes, remaining: int, reset_ms: int) -> bytes:
    """One element of `statuses`, with its tag and length."""
    if remaining:
        head = head + _STATUS_REMAINING + _number(remaining)
    body = head + _resets[reset_ms]
    return _before_status(len(body)) + body


def _fixed_status(more: bytes = b"", **fields: Any) -> bytes:
    data = RateLimitResponse.DescriptorStatus(code=RateLimitResponse.OK, **fields).SerializeToString() + more
    return _STATUSES + varint(len(data)) + data


STATUS_WITHOUT_LIMIT: Final = {reason: _fixed_status(encode_unmet(reason)) for reason in Unmet}
"""Statuses of descriptors that nothing limits, by why; Envoy and others skip the field that says it."""

STATUS_UNLIMITED: Final = _fixed_status(limit_remaining=MAX_UINT32)


def _not_to_be_kept() -> bytes:
    quota = RateLimitResponse.Quota(requests=1)
    quota.valid_until.SetInParent()
    return RateLimitResponse(quota=quota).SerializeToString()


NOT_TO_BE_KEPT: Final = _not_to_be_kept()
"""`quota`: the answer is for one request, and expired (1970): whoever remembers answers asks again for the next."""


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """`response_headers_to_add`, with tags and lengths."""
    encoded = b""
    for name, text in headers:
        key, value = name.encode(), text.encode()
        data = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(value)) + value
        encoded += _RESPONSE_HEADERS + varint(len(data)) + data
    return encoded


def encode_raw_body(body: bytes) -> bytes:
    """`raw_body`, with its tag and length."""
    return _RAW_BODY + varint(len(body)) + body if body else b""


def encode_dynamic_metadata(metadata: Mapping[str, Any]) -> bytes:
    """`dynamic_metadata`, with its tag and length."""
    struct = Struct()
    struct.update(dict(metadata))
    # Maps have no order on the wire; a plan's bytes are compared in tests, so give them one.
    data = struct.SerializeToString(deterministic=True)
    return _DYNAMIC_METADATA + varint(len(data)) + data
