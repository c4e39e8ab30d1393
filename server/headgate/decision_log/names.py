"""Names in the decision log: hashes of descriptors and counters, and the terms of a limit."""

from hashlib import blake2b

from headgate.decision_log.schema import LimitTerms
from headgate.limiter.decision import Entries
from headgate.limiter.limit import Limit


def terms_of(limit: Limit) -> LimitTerms:
    """The terms of a limit that an explanation needs."""
    times = "" if limit.unit_multiplier == 1 else f"{limit.unit_multiplier} "
    return LimitTerms(
        limit.requests_per_unit,
        limit.window_ms,
        limit.algorithm.value,
        limit.burst,
        limit.precision,
        limit.on_error.value,
        limit.scope_in_force.value,
        f"{times}{limit.unit.name.lower()}",
    )


def hash_of_key(key: bytes) -> int:
    """A limit key, as the log names it."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def hash_of_descriptor(domain: str, entries: Entries) -> int:
    """A domain and a descriptor, as the log names them."""
    parts = [domain]
    for pair in entries:
        parts += pair
    # The lengths behind them keep parts apart, whatever is in them.
    text = "\0".join([*parts, ",".join([str(len(part)) for part in parts])])
    return hash_of_key(text.encode("utf-8", "surrogatepass"))
