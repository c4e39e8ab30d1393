"""The regional origin as a node sees it: shards that are called, and that may fail.

Every implementation passes tests/conformance/origin. A call raises OriginError for
whatever went wrong below: drivers' exceptions end at this seam.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from headgate.origin.book import BookEntry, BookPage, BookState
from headgate.origin.claims import Claim
from headgate.origin.look import KeyLook
from headgate.origin.protocol import Call, Changes, ForeignCount, Lane, Published, Pulse, Reply, Stamp
from headgate.origin.quota_protocol import QuotaLease, QuotaSave, QuotaSaved, QuotaStep, QuotaStepped

HEARTBEAT_S = 1.0
"""How often a node says that it lives. A wipe is noticed within one of these, traffic or not."""

NODE_GONE_MS = 5_000
"""After how long without a heartbeat a node no longer counts: five of them, so that a slow
moment does not change what the failure policies divide by."""

REGION_GONE_MS = 30_000
"""After how long without a batch another region no longer counts as active: several lost ones, or a restart of its
exchangers, do not change what limits of scope `cell` are divided by."""

LEASE_MS = 5_000
"""For how long an exchanger has a peer to itself after it last read for it. Longer than a batch may take,
so that two rarely send the same; short enough that one that died is replaced soon."""


class OriginError(Exception):
    """A shard could not be asked, or answered with an error; the message says which and how."""


class OriginTimeout(OriginError):
    """No answer in time: the call may have been carried out, or not."""


class Origin(Protocol):
    """The shards of one region. What a node calls, whatever is behind it."""

    exclusive: bool
    """This node is the origin's only one and lives in its process: the node's own cells are the
    region's counts, there is nobody to converge with, and no call is ever needed."""

    @property
    def shards(self) -> int:
        """How many shards there are; they are numbered from 0, the same way on every node."""
        ...

    def shard_of(self, key: bytes) -> int:
        """Which shard owns a limit key; the same on every node of the region."""
        ...

    async def open(self) -> None:
        """Connect as far as possible. A shard that does not answer is no error: calls to it will fail."""
        ...

    def describe(self) -> Sequence[Any]:
        """What is behind the shards, and how it is doing, as dataclasses; nothing that is secret."""
        ...

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        """Report, charge and read, in one round trip, sent once: never retried below this seam."""
        ...

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        """Say that this run lives; the shard says how many do, and whether it remembers this one."""
        ...

    async def import_foreign(
        self, shard: int, counts: Sequence[ForeignCount], timeout_s: float, stamp: Stamp | None = None
    ) -> None:
        """Merge what other regions have said; never published again. `stamp` is who said it, and when."""
        ...

    async def changes(
        self,
        shard: int,
        peer: bytes,
        lane: Lane,
        owner: bytes,
        generation: bytes,
        most: int,
        timeout_s: float,
        after: int = 0,
    ) -> Changes:
        """How far `peer` has been told; names of published keys behind that, if `owner` gets or has the lease on it.

        `generation` becomes that of a memory that has none yet. With `after` names come from behind that change, if
        the peer has not been told so far: what is new, for one that is told of much else.
        """
        ...

    async def components(
        self, shard: int, peer: bytes, lane: Lane, names: Sequence[bytes], timeout_s: float
    ) -> list[Published | None]:
        """What to tell `peer` of each; None where nothing is left, and then the name is forgotten."""
        ...

    async def acknowledge(self, shard: int, peer: bytes, lane: Lane, changes: Changes, timeout_s: float) -> bool:
        """`peer` has all that `changes` named. False: the shard has lost its memory, or another exchanger was first."""
        ...

    async def begin_walk(self, shard: int, peer: bytes, walk: bytes, timeout_s: float) -> None:
        """Tell `peer` everything from the beginning, with its own components; once per `walk`.

        An empty `walk` tells everything again and answers nobody.
        """
        ...

    async def mark_filled(self, shard: int, peer: bytes, mark: bytes, timeout_s: float) -> None:
        """`peer` has told all that it knows of what this shard may have lost: `mark` says of which memory."""
        ...

    async def give_back(self, shard: int, owner: bytes, peers: Sequence[bytes], timeout_s: float) -> None:
        """`owner` leaves: its leases on these peers, and that on the region's slices, are anybody's again."""
        ...

    async def quota_lease(
        self, shard: int, owner: bytes, drawn: bytes, peers: Sequence[bytes], timeout_s: float
    ) -> QuotaLease:
        """Whether `owner` keeps the region's slices; what the store has for it. `drawn` becomes the generation of a
        store that has none yet. The store is on the first shard."""
        ...

    async def quota_rows(
        self, shard: int, cursor: int, timeout_s: float
    ) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        """A page of what the store has, from 0 on, and where the next one begins; 0 after the last. A key may come
        twice."""
        ...

    async def quota_save(self, shard: int, save: QuotaSave, timeout_s: float) -> QuotaSaved:
        """Write what the keeper knows: each key if the store has what it had before."""
        ...

    async def quota_post(self, shard: int, peer: bytes, message: bytes, timeout_s: float) -> bytes:
        """Leave a peer's message for the keeper; which of that peer's it has taken in last."""
        ...

    async def quota_step(self, shard: int, step: QuotaStep, timeout_s: float) -> QuotaStepped:
        """Write which shares are in force on a shard, and read what is used and offered of each, at one instant."""
        ...

    async def write_book(
        self, shard: int, entries: Sequence[BookEntry], generation: bytes, timeout_s: float
    ) -> BookState:
        """Merge entries into the region's book; `generation` becomes that of a book that begins with them."""
        ...

    async def read_book(self, shard: int, since: int, most: int, timeout_s: float) -> BookPage:
        """What changed in the region's book after the change `since`."""
        ...

    async def look(self, shard: int, key: bytes, window_ms: int, timeout_s: float) -> KeyLook:
        """A limit key's record, for people; changes nothing, and creates nothing."""
        ...

    async def claim(self, shard: int, name: bytes, value: bytes, expires_ms: int, timeout_s: float) -> Claim:
        """Take a name that can be taken once until then; the same value may ask again."""
        ...

    async def close(self) -> None:
        """Give up all connections; nothing is called after this."""
        ...
