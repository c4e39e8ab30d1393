"""Limit keys: (domain, rule, matched values) as bytes, such that no two tuples share a string.

Every part is preceded by its length, so `a`+`b_c` can't become `a_b`+`c`, whatever
bytes the parts hold.
"""

from collections.abc import Iterable


def encode_key(parts: Iterable[str]) -> bytes:
    """Length-prefixed: `4:edge4:user5:alice`."""
    encoded = []
    for part in parts:
        data = part.encode()
        encoded.append(b"%d:%s" % (len(data), data))
    return b"".join(encoded)
