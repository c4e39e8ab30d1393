"""What callers give, checked: whatever can't be meant is refused with the name of the argument.

Mistakes of the kind that pass unnoticed until production are the reason: a mapping where a list of
them belongs would be taken for a list of its keys; an int for a value would fail in the encoder,
which does not say whose it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal, get_args

from headgate_client.rates import check_rate
from headgate_client.values import Descriptor, Entries
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

OnError = Literal["open", "closed", "raise"]
"""Without a decision of the server: allow, deny, or raise RateLimitError."""
Descriptors = Sequence[Descriptor | Entries]
"""A list: each a mapping, a list of pairs, or a `Descriptor` with a cost or a limit of its own."""
Rules = str | PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A file or a directory of rules; or what such files hold, one mapping for each."""
MAX_COST: Final = 2**32 - 1
"""What the wire can hold."""


def request_of(domain: str, descriptors: Descriptors | None, entries: Mapping[str, Any], cost: int) -> bytes:
    """The message to send. Raises TypeError or ValueError that name the argument."""
    check_cost("cost", cost)
    request = RateLimitRequest(domain=domain, hits_addend=cost)
    for where, descriptor in _descriptors(descriptors, entries):
        message = request.descriptors.add()
        for key, value in _pairs(where, descriptor.entries):
            message.entries.add(key=key, value=value)
        # A request's cost of 0 means 1 on the wire; a descriptor's means 0: look, and charge nothing.
        hits = 0 if descriptor.hits is None and cost == 0 else descriptor.hits
        if hits is not None:
            check_cost(f"{where}.hits", hits)
            message.hits_addend.value = hits
        if descriptor.limit is not None:
            requests, unit = check_rate(f"{where}.limit" if where else "limit", descriptor.limit)
            message.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=requests, unit=unit))
    return request.SerializeToString()


def _descriptors(given: Descriptors | None, entries: Mapping[str, Any]) -> Iterable[tuple[str, Descriptor]]:
    if given is None:
        if not entries:
            raise TypeError("descriptors: none is given; write check(user='alice') or check([{'user': 'alice'}])")
        return [("", Descriptor(entries))]
    if entries:
        raise TypeError(f"descriptors: a list is given and so is {next(iter(entries))!r}: use the one or the other")
    if isinstance(given, Mapping | Descriptor):
        raise TypeError(f"descriptors: a list of descriptors, got one that is not in a list: write [{given!r}]")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"descriptors: a list of mappings, got {_kind(given)}")
    numbered = [(f"descriptors[{n}]", _descriptor(f"descriptors[{n}]", one)) for n, one in enumerate(given)]
    if not numbered:
        raise ValueError("descriptors: the list is empty: there is nothing to limit")
    return numbered


def _descriptor(where: str, given: object) -> Descriptor:
    if isinstance(given, Descriptor):
        return given
    if isinstance(given, str | bytes) or not isinstance(given, Mapping | Sequence):
        raise TypeError(f"{where}: a mapping or a list of pairs, got {_kind(given)}")
    return Descriptor(given)


def _pairs(where: str, entries: Entries) -> list[tuple[str, str]]:
    given = entries.items() if isinstance(entries, Mapping) else entries
    pairs = [_pair(where, entry) for entry in given]
    if not pairs:
        raise ValueError(f"{where}: has no entries")
    return pairs


def _pair(where: str, entry: object) -> tuple[str, str]:
    if isinstance(entry, str | bytes) or not isinstance(entry, Sequence) or len(entry) != 2:
        raise TypeError(f"{where}: a pair of a key and a value, got {_kind(entry)}")
    key, value = entry
    if not isinstance(key, str):
        raise TypeError(f"{where or 'descriptors'}: a key is a str, got {_kind(key)}")
    if not key:
        raise ValueError(f"{where}: a key is empty")
    name = f"{where}[{key!r}]" if where else key
    if not isinstance(value, str):
        raise TypeError(f"{name}: a value is a str, got {_kind(value)}")
    check_text(name, key)
    check_text(name, value)
    return key, value


def check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: can't be sent as UTF-8: {error.reason} at character {error.start}") from error


def check_cost(name: str, cost: object) -> None:
    if not isinstance(cost, int) or isinstance(cost, bool):
        raise TypeError(f"{name}: an int, got {_kind(cost)}")
    if not 0 <= cost <= MAX_COST:
        raise ValueError(f"{name}: 0 to {MAX_COST}, got {cost}")


def check_domain(domain: object) -> str:
    if not isinstance(domain, str):
        raise TypeError(f"domain: a str, got {_kind(domain)}")
    if not domain:
        raise ValueError("domain: is empty; it is the `domain` of a rules file")
    check_text("domain", domain)
    return domain


def check_seconds(name: str, seconds: object, *, zero: bool = False) -> float:
    """A time that is finite and above 0, or 0 where that is allowed."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{name}: a number of seconds, got {_kind(seconds)}")
    if not (seconds >= 0 if zero else seconds > 0) or seconds == float("inf"):
        raise ValueError(f"{name}: seconds, {'0 or more' if zero else 'above 0'}, got {seconds}")
    return float(seconds)


def check_on_error(on_error: object) -> OnError:
    for known in get_args(OnError):
        if on_error == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"on_error: one of {', '.join(map(repr, get_args(OnError)))}, got {on_error!r}")


def check_callable(name: str, given: object) -> None:
    if given is not None and not callable(given):
        raise TypeError(f"{name}: a function, got {_kind(given)}")


def _kind(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '…'}"
