"""Envoy's messages as proto3 JSON: for people with curl, and for callers without gRPC.

Both directions go through the same bytes as gRPC does, so that there is one decision path. Requests may use camelCase
or snake_case; unknown fields are errors. They are read here and not by protobuf's own reader, which takes up to forty
times as long: that is time of the loop, which anybody could take. What is accepted becomes the same message there.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import json_format
from headgate_client.unmet import Unmet, nothing_applied, unmet_of
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2
from headgate_client.wire.envoy.type.v3 import ratelimit_unit_pb2

from headgate.errors import BadRequest

RETRY_AFTER = "Retry-After"
NO_RULE: Final = "X-Headgate-No-Rule"
"""Header of an answer to which no rule applied: `domain`, if the rules have none of this name, or `descriptor`."""
OVER_LIMIT = rls_pb2.RateLimitResponse.OVER_LIMIT
MOST_DESCRIPTORS: Final = 256
"""The highest that the setting `max_descriptors` allows."""
MOST_ENTRIES: Final = 256
"""The highest that `max_entries` allows."""

_DIGITS: Final = re.compile("[0-9]{1,20}")

Read = Callable[[Any, str], Any]
"""Makes a field's value of JSON; is told where it stands, for errors."""
_Fields = dict[str, tuple[str, Read]]


class _NotRequest(Exception):
    """A value is not what its field takes; the message says which, and what it does."""


def request_from_json(body: bytes) -> bytes:
    """JSON text to a serialized RateLimitRequest, or BadRequest."""
    try:
        value = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_no_constant)
        return rls_pb2.RateLimitRequest(**_REQUEST(value, "")).SerializeToString()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise BadRequest("the body is not text: half of a surrogate pair is in it") from None
    except (_NotRequest, ValueError, TypeError) as error:
        raise BadRequest(f"the body is not a RateLimitRequest in JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NotRequest(f"{twice!r} stands in an object twice")
    return found


def _no_constant(text: str) -> None:
    raise _NotRequest(f"{text} is no JSON")


# Kinds of values. None (`null`) is as good as none, for all of them.


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise _NotRequest(f"{at}: text is expected")
    return value


def _flag(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise _NotRequest(f"{at}: true or false is expected")
    return value


def _whole(bits: int) -> Read:
    """Make a reader of whole numbers from 0 on, which JSON may have as text."""

    def read(value: Any, at: str) -> int:
        number = value
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            number = int(value)
        if isinstance(value, float) and value.is_integer():
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << bits:
            raise _NotRequest(f"{at}: a whole number from 0 to {(1 << bits) - 1} is expected")
        return number

    return read


def _unit(value: Any, at: str) -> int:
    units = ratelimit_unit_pb2.RateLimitUnit
    if isinstance(value, str) and value in units.keys():  # noqa: SIM118 - it is no mapping
        return units.Value(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in units.values():
        return value
    raise _NotRequest(f"{at}: one of {', '.join(units.keys())} is expected")


def _message(fields: _Fields) -> Read:
    """Make a reader of objects: arguments for a message, by its own names."""
    known = {spelling: (name, read) for name, (camel, read) in fields.items() for spelling in (name, camel)}

    def read(value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _NotRequest(f"{at or 'the body'}: a JSON object is expected")
        found: dict[str, Any] = {}
        for spelling, inner in value.items():
            if spelling not in known:
                raise _NotRequest(f"{_below(at, spelling[:40])}: there is no such field")
            name, reads = known[spelling]
            if name in found:
                raise _NotRequest(f"{_below(at, spelling)}: it is there twice, spelled in two ways")
            if inner is not None:
                found[name] = reads(inner, _below(at, spelling))
        return found

    return read


def _list_of(read_one: Read, most: int) -> Read:
    def read(value: Any, at: str) -> list[Any]:
        if not isinstance(value, list):
            raise _NotRequest(f"{at}: a list is expected")
        if len(value) > most:
            raise _NotRequest(f"{at}: {len(value)} of them, at most {most} are accepted")
        return [read_one(inner, f"{at}[{index}]") for index, inner in enumerate(value)]

    return read


def _boxed(read_one: Read) -> Read:
    """Make a reader of a number that may be missing."""
    return lambda value, at: {"value": read_one(value, at)}


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


_ENTRY: Final = _message({"key": ("key", _text), "value": ("value", _text)})
_LIMIT: Final = _message({"requests_per_unit": ("requestsPerUnit", _whole(32)), "unit": ("unit", _unit)})
_DESCRIPTOR: Final = _message(
    {
        "entries": ("entries", _list_of(_ENTRY, MOST_ENTRIES)),
        "limit": ("limit", _LIMIT),
        "hits_addend": ("hitsAddend", _boxed(_whole(64))),
        "is_negative_hits": ("isNegativeHits", _flag),
    }
)
_REQUEST: Final = _message(
    {
        "domain": ("domain", _text),
        "descriptors": ("descriptors", _list_of(_DESCRIPTOR, MOST_DESCRIPTORS)),
        "hits_addend": ("hitsAddend", _whole(32)),
    }
)


# Answers


def parse_response(payload: bytes) -> rls_pb2.RateLimitResponse:
    """The message that a handler's answer holds."""
    return rls_pb2.RateLimitResponse.FromString(payload)


def response_to_json(response: rls_pb2.RateLimitResponse) -> str:
    """Zeros are written (`limitRemaining: 0` matters); what the answer does not have is left out."""
    fields: dict[str, Any] = json_format.MessageToDict(response, always_print_fields_with_no_presence=True)
    return json.dumps({name: value for name, value in fields.items() if value}) + "\n"


def response_headers(response: rls_pb2.RateLimitResponse) -> list[tuple[str, str]]:
    """The headers that Envoy would add to the answer of its caller; on a denial `Retry-After` in any case, and where
    nothing applied one that says so."""
    headers = [
        (header.key, header.value or header.raw_value.decode("latin-1")) for header in response.response_headers_to_add
    ]
    told = any(name.lower() == RETRY_AFTER.lower() for name, _ in headers)
    if response.overall_code == OVER_LIMIT and not told:
        headers.append((RETRY_AFTER, str(_retry_after_s(response))))
    reasons = [unmet_of(status) for status in response.statuses]
    if nothing_applied(reasons):
        headers.append((NO_RULE, "domain" if Unmet.NO_DOMAIN in reasons else "descriptor"))
    return headers


def _retry_after_s(response: rls_pb2.RateLimitResponse) -> int:
    """Whole seconds, rounded up and at least one, until the longest of the denials is over."""
    denials = [status.duration_until_reset for status in response.statuses if status.code == OVER_LIMIT]
    return max([1, *(-(-reset.ToMilliseconds() // 1000) for reset in denials)])
