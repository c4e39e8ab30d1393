"""Versions of rules by content: a domain's is a sum over its rules, the set's a hash over all domains.

A sum, because one rule of five million changes it by a subtraction and an addition: nothing of the others is read. Each
addend is a keyed hash of a rule with its path, as wide as the sum, so two contents share a version only by an accident
that does not happen. It guards against mistakes and not against authors, who are known and may write what they like.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from headgate.limiter.rule_name import Steps

_BYTES: Final = 32
_MODULUS: Final = 1 << 8 * _BYTES
_RULE: Final = b"headgate rule 1"
_SET: Final = b"headgate set 1"
VERSION_CHARS: Final = 32
"""Hexadecimal digits of a version: 128 bits."""


def path_text(path: Steps) -> str:
    """Write a path as text; no two paths share one."""
    return json.dumps(path, ensure_ascii=False, separators=(",", ":"))


def path_of(text: str) -> Steps:
    """Read what `path_text` wrote."""
    return tuple((key, value) for key, value in json.loads(text))


def weight(path: str, rule: bytes | None) -> int:
    """Addend of one rule, by its path's text; a rule that is not there weighs nothing."""
    if rule is None:
        return 0
    digest = hashlib.blake2b(rule, digest_size=_BYTES, person=_RULE, salt=b"", key=_short(path))
    return int.from_bytes(digest.digest())


def _short(path: str) -> bytes:
    """Name a path in as many bytes as a key of the hash may have."""
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def changed(total: int, path: str, before: bytes | None, after: bytes | None) -> int:
    """Sum of a domain in which one rule became another."""
    return (total - weight(path, before) + weight(path, after)) % _MODULUS


def set_version(domains: Mapping[str, int]) -> str:
    """Version of a set, from the sum of each domain."""
    digest = hashlib.blake2b(digest_size=_BYTES, person=_SET)
    for name in sorted(domains):
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%s" % (len(encoded), encoded))
        digest.update(pack(domains[name]))
    return digest.hexdigest()[:VERSION_CHARS]


def pack(total: int) -> bytes:
    """Write a sum as bytes of one length."""
    return total.to_bytes(_BYTES)


def unpack(data: bytes) -> int:
    """Read what `pack` wrote."""
    return int.from_bytes(data)


EMPTY_VERSION: Final = set_version({})
"""Version of no rules at all."""
