"""Why nothing limits a descriptor, as Headgate says it beside each status without a limit.

Envoy's message has no place for it, so it is a field of Headgate's own, with a number far from Envoy's: whoever does
not know it skips it, as protobuf does with fields of a newer version.
"""

from enum import IntEnum
from typing import Final

from google.protobuf.unknown_fields import UnknownFieldSet

from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2

FIELD: Final = 7473
"""Number of the field in `DescriptorStatus`."""


class Unmet(IntEnum):
    """Reasons for a status without a limit."""

    NO_DOMAIN = 1
    """The server has no rules for the request's domain: most often a typo."""
    NO_RULE = 2
    """No rule of the domain applies to the descriptor: a typo in a key, another order of entries, nothing to limit."""
    REPLACED = 3
    """A rule applies, and another one that the request met replaces it."""
    EXEMPT = 4
    """A rule without a limit applies: it is there to exempt."""


def encode_unmet(reason: Unmet) -> bytes:
    """The field, to be put at the end of a serialized status."""
    tag = FIELD << 3
    return bytes((tag & 0x7F | 0x80, tag >> 7 & 0x7F | 0x80, tag >> 14, reason))


def unmet_of(status: rls_pb2.RateLimitResponse.DescriptorStatus) -> Unmet | None:
    """The reason that a server gave; None where there is a limit, or the server does not say it."""
    if status.HasField("current_limit"):
        return None
    unknown = UnknownFieldSet(status)
    fields = [unknown[index] for index in range(len(unknown))]
    said = [field.data for field in fields if field.field_number == FIELD]
    return Unmet(said[0]) if said and said[0] in list(Unmet) else None


def nothing_applied(reasons: "list[Unmet | None]") -> bool:
    """Tell whether no rule at all applied to a request, by the reasons of its descriptors."""
    return bool(reasons) and all(reason in (Unmet.NO_DOMAIN, Unmet.NO_RULE) for reason in reasons)
