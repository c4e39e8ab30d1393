"""Limit keys: (domain, rule, matched values) as bytes, such that no two tuples share a string.

Every part is preceded by its length, so `a`+`b_c` can't become `a_b`+`c` with any
bytes in the parts. A part of more than 128 bytes is there by its digest.

A key is the domain, then one group of parts per level, then the
tail. A group begins with its kind, and the kind says how many parts follow, so groups
can't run together either:

    e key value            an exact value
    k key value            a key without a value: each value of the request its own counter
    w key pattern value    a wildcard: each matching value its own counter
    s key pattern          a wildcard that shares one counter
    o key value            an entry of a per-request override, which no rule's group can equal
    t algorithm window_ms  the tail: a changed window or algorithm is a new counter,
                           a changed limit is not
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from headgate.limiter.limit import Algorithm
from headgate.limiter.rule_name import Steps

EXACT = "e"
KEY_ONLY = "k"
WILDCARD = "w"
SHARED = "s"
OVERRIDE = "o"
TAIL = "t"


MAX_PART_BYTES = 128
"""Longest part that stands in a key as it is; a longer one is there by its digest, so that counters, plans and keys in
Redis stay small.
"""
DIGEST_BYTES = 20
"""160 bits: finding two values that share a counter is infeasible."""


def encode_part(part: str) -> bytes:
    """One part: length-prefixed, or `h:` and the digest of one that is long, which no length can begin with."""
    # surrogatepass: a lone surrogate (JSON can carry one) gets a key like any other text.
    data = part.encode("utf-8", "surrogatepass")
    if len(data) > MAX_PART_BYTES:
        return b"h:" + blake2b(data, digest_size=DIGEST_BYTES).hexdigest().encode()
    return b"%d:%s" % (len(data), data)


def encode_key(parts: Iterable[str]) -> bytes:
    """Length-prefixed: `4:edge4:user5:alice`."""
    return b"".join(map(encode_part, parts))


def encode_tail(algorithm: Algorithm, window_ms: int) -> bytes:
    """Encode the end of a key: the algorithm as one letter, since a key is kept per counter, and the window."""
    return encode_key((TAIL, algorithm.value[0], str(window_ms)))


def override_key(
    domain: str,
    entries: Sequence[tuple[str, str]],
    window_ms: int,
    algorithm: Algorithm = Algorithm.SLIDING_WINDOW,
) -> bytes:
    """The counter of a limit that came with the request: apart from every rule's."""
    parts = [domain]
    for key, value in entries:
        parts += (OVERRIDE, key, value)
    return encode_key(parts) + encode_tail(algorithm, window_ms)


def split_key(key: bytes) -> list[bytes]:
    """Split a key into its encoded parts. Raises ValueError where it is no row of parts."""
    parts: list[bytes] = []
    position = 0
    while position < len(key):
        colon = key.index(b":", position)
        said = key[position:colon]
        if said == b"h":
            length = 2 * DIGEST_BYTES
        elif said.isdigit() and len(said) <= 3:
            length = int(said)
        else:
            raise ValueError("a part without a length")
        end = colon + 1 + length
        if end > len(key):
            raise ValueError("a part that is cut off")
        parts.append(key[position:end])
        position = end
    return parts


_PARTS_AFTER = {EXACT: 2, KEY_ONLY: 2, WILDCARD: 3, SHARED: 2, OVERRIDE: 2}


def decode_key(key: bytes) -> tuple[str, Steps, tuple[tuple[str, str], ...]]:
    """Domain, the way to the rule, and the matched values, for people; a long part is there by its digest.

    For a limit that came with a request there is no way.
    """
    parts = _parts(key)
    domain = next(parts)
    steps: list[tuple[str, str]] = []
    values: list[tuple[str, str]] = []
    for kind in parts:
        if kind == TAIL:
            break
        name, *rest = [next(parts) for _ in range(_PARTS_AFTER[kind])]
        if kind != OVERRIDE:
            steps.append((name, "" if kind == KEY_ONLY else rest[0]))
        values.append((name, rest[-1]))
    return domain, tuple(steps), tuple(values)


def has_digest(key: bytes) -> bool:
    """Return true if a part is there by its digest: then the key does not say which descriptor meets it."""
    return any(part.startswith(b"h:") for part in split_key(key))


def _parts(key: bytes) -> Iterator[str]:
    for part in split_key(key):
        yield part[part.index(b":") + 1 :].decode("utf-8", "replace")
