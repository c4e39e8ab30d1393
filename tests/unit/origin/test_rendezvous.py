"""Which shard owns a key: stable, even, and moving only what must move."""

from collections import Counter

from headgate.origin.rendezvous import Rendezvous, hash_of, list_name

NAMES = ["redis-0:6379", "redis-1:6379", "redis-2:6379"]
KEYS = [b"4:edge4:user%d" % number for number in range(3_000)]


def owners(names: list[str]) -> list[str]:
    rendezvous = Rendezvous(names)
    return [names[rendezvous.owner(key)] for key in KEYS]


def test_owners_are_the_same_in_every_process_and_version() -> None:
    """Written down: another hash would move every key of a running region."""
    rendezvous = Rendezvous(NAMES)
    assert [rendezvous.owner(b"key-%d" % number) for number in range(12)] == [0, 2, 0, 1, 1, 2, 2, 0, 1, 1, 0, 2]
    assert hash_of(b"key") == 14_878_992_315_609_337_077


def test_each_shard_has_its_share() -> None:
    counts = Counter(owners(NAMES))
    assert all(abs(count - 1_000) < 100 for count in counts.values()), counts


def test_the_order_of_names_does_not_matter() -> None:
    assert owners(NAMES) == owners(NAMES[::-1])


def test_a_shard_that_is_added_takes_its_share_and_nothing_else_moves() -> None:
    before, after = owners(NAMES), owners([*NAMES, "redis-3:6379"])
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert all(new == "redis-3:6379" for _, new in moved)
    assert abs(len(moved) - 750) < 100
    taken_from = Counter(old for old, _ in moved)
    assert all(abs(taken_from[name] - 250) < 60 for name in NAMES), taken_from


def test_a_shard_that_is_removed_leaves_the_others_keys_where_they_are() -> None:
    before, after = owners(NAMES), owners(NAMES[:2])
    assert all(old == new for old, new in zip(before, after, strict=True) if old != NAMES[2])


def test_one_shard_owns_everything() -> None:
    assert set(owners(NAMES[:1])) == {NAMES[0]}


def test_a_list_has_one_name_in_any_order_after_the_first_and_another_one_with_other_shards() -> None:
    assert list_name(["a:1", "b:1", "c:1"]) == list_name(["a:1", "c:1", "b:1"])
    names = [["a:1"], ["a:1", "b:1"], ["b:1", "a:1"], ["a:1", "c:1"], ["a:1b:1"], ["a:1", "b:1", "c:1"]]
    assert len({list_name(shards) for shards in names}) == len(names)
