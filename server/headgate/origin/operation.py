"""An operation on a shard, as a value: what is asked, what it means, and how Redis is asked the same.

Each operation is one class in one module (operations/, and one package per feature above the core), with one Lua file
of the same name. `apply` is its meaning: on the reference, in this process. `pack`, the Lua and `unpack` are the same
on a Redis. One table of cases (tests/conformance/origin) holds both to each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgpack

from headgate.origin.keyspace import KeySpace
from headgate.origin.shard_memory import ShardMemory

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Packed(NamedTuple):
    """KEYS and ARGV of a script."""

    keys: Sequence[bytes]
    """At least one, also where nothing is read: it says to which shard the call belongs."""
    arguments: Sequence[bytes | int]


class Operation(ABC, Generic[R_co]):
    """One request to a shard, sent once, with a result of type R_co."""

    __slots__ = ()

    lua: ClassVar[tuple[str, ...]]
    """Lua files that make up the script, in order, each as package/name: `origin/call` is origin/lua/call.lua."""
    own_connection: ClassVar[bool] = False
    """True: it must not queue behind other operations that stall."""

    @abstractmethod
    def apply(self, memory: ShardMemory) -> R_co:
        """Carry it out on a shard in memory."""

    @abstractmethod
    def pack(self, space: KeySpace) -> Packed:
        """Build the keys and arguments of its script."""

    @abstractmethod
    def unpack(self, reply: Any, epoch: bytes) -> R_co:
        """Build the result from the script's reply and the epoch of the server that gave it.

        Raises ValueError, TypeError, IndexError or KeyError for a reply that its script does not give.
        """


def packed(flat: Any) -> bytes:
    """Pack something flat for cmsgpack.unpack in Lua, which does not know msgpack's newer type for bytes."""
    data: bytes = msgpack.packb(flat, use_bin_type=False)
    return data
