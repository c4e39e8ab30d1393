"""The callers that are blocked: how they are found, what denies them, and how a block is written down."""

import pytest
from headgate.limiter.blocks import Block, BlockedEntry, Blocks
from headgate.limiter.limit import Algorithm, Limit, Unit

EVE = BlockedEntry("edge", "user", "eve")
BLOCK = Block(EVE, 1_000, "alice", "scrapes", 7)
SOFT = Limit(10, Unit.HOUR, name="n", shadow=True, quota=True, overdraft=True, refund=True, replaces=("other",))


@pytest.mark.parametrize(
    ("domain", "entries", "found"),
    [
        ("edge", (("user", "eve"),), True),
        ("edge", (("path", "/login"), ("user", "eve")), True),
        ("edge", (("user", "eve"), ("path", "/login")), True),
        ("edge", (("user", "evelyn"),), False),
        ("edge", (("User", "eve"),), False),
        ("edge", (("friend", "eve"),), False),
        ("edge", (), False),
        ("other", (("user", "eve"),), False),
    ],
)
def test_a_descriptor_is_blocked_by_any_of_its_entries(
    domain: str, entries: tuple[tuple[str, str], ...], found: bool
) -> None:
    blocks = Blocks()
    blocks.change([BLOCK])
    assert (blocks.find(domain, entries) is BLOCK) == found


def test_the_limit_that_denies_is_softened_by_nothing() -> None:
    denying = Blocks().instead_of(SOFT)
    assert (denying.requests_per_unit, denying.burst, denying.window_ms, denying.name) == (0, 0, 3_600_000, "n")
    soft = denying.shadow, denying.quota, denying.overdraft, denying.refund, denying.replaces
    assert soft == (False, False, False, False, ())
    bucket = Blocks().instead_of(Limit(10, Unit.HOUR, algorithm=Algorithm.GCRA, burst=5))
    assert (bucket.burst, bucket.algorithm) == (0, Algorithm.GCRA)
    unlimited = Blocks().instead_of(Limit(0, Unit.UNKNOWN, name="free", unlimited=True))
    assert (unlimited.unlimited, unlimited.window_ms, unlimited.name) == (False, 60_000, "free")


def test_the_same_limit_has_always_the_same_one_in_its_place() -> None:
    blocks = Blocks()
    assert blocks.instead_of(SOFT) is blocks.instead_of(SOFT)


def test_a_change_is_told_once_and_what_changes_nothing_is_not() -> None:
    blocks, told = Blocks(), []
    blocks.on_change = lambda: told.append(len(blocks))
    blocks.change([BLOCK, Block(BlockedEntry("edge", "user", "bob"), 1_000)])
    blocks.change([BLOCK], [BlockedEntry("edge", "user", "nobody")])
    blocks.change([], [EVE])
    assert told == [2, 1]
    assert blocks.get(EVE) is None


def test_a_block_is_read_as_it_was_written() -> None:
    assert Block.decode(BLOCK.encode(), 1_000) == BLOCK


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b"{}", b'{"entry": ["a"]}', b'{"entry": ["a", "b", "c"], "who": ""}']
)
def test_anything_else_is_no_block(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whichever kind
        Block.decode(value, 0)
