"""Replies of any content to a node's call: each is read, or refused by name, and nothing else is raised."""

import asyncio
from typing import Any

import msgpack
from headgate.origin.call_codec import BUCKET_NUMBERS, WINDOW_NUMBERS
from headgate.origin.interface import OriginError
from headgate.origin.operations.call import Reply
from headgate.origin.redis_origin.base import RedisOrigin
from headgate.origin.redis_origin.scripts import Scripts
from hypothesis import strategies as st

from tests.conformance.origin.cases import bucket, cell, said, window
from tests.support.properties import check, examples_of

CALL = said(window("a", 1, cell(3)), bucket("a", 1, 2), window("b", 2, cell(1)), wants=((1, -1, 1), (-1, 1, -1)))


def shape(reply: Reply) -> list[int]:
    return [len(part) for part in (*reply.answers, reply.charged)]


WHOLE = shape(CALL.unpack(msgpack.packb([0] * (1 + 2 + 2 * WINDOW_NUMBERS + BUCKET_NUMBERS)), b"epoch"))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, -1, 2**53])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    NUMBERS | st.floats() | st.none() | st.booleans() | st.binary(max_size=8) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.integers(0, 9) | st.text(max_size=2), inner),
    max_leaves=50,
)
REPLIES = (
    st.lists(NUMBERS, max_size=60).map(msgpack.packb) | ANYTHING.map(msgpack.packb) | st.binary(max_size=60) | ANYTHING
)


class Lying(RedisOrigin):
    """A server that says what it likes."""

    reply: Any = None

    def __init__(self) -> None:
        super().__init__(Scripts(), b"here", [b"headgate:"])

    async def _run(self, *_call: Any, **_how: Any) -> tuple[Any, bytes]:
        return self.reply, b"epoch"

    def shard_of(self, key: bytes) -> int:
        return 0

    def describe(self) -> list[Any]:
        return []

    async def open(self) -> None: ...

    async def close(self) -> None: ...


@examples_of(300, 5_000)
def test_a_reply_of_any_content_is_read_or_refused(count: int) -> None:
    origin = Lying()

    def read(reply: Any) -> None:
        origin.reply, said = reply, ""
        try:
            found = runner.run(origin.run(0, CALL, 1.0))
        except OriginError as error:
            said = str(error)
        else:
            assert shape(found) == WHOLE
        assert not said or "a reply that is not one of ours" in said

    with asyncio.Runner() as runner:
        check(count, read, reply=REPLIES)
