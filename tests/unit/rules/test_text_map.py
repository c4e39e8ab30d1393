"""A map that is changed by making another: it does what a dict does, and older ones stay what they were."""

from array import array

from headgate.rules.text_map import BUCKET_ENTRIES, TextBucket, TextMap, text_map
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.sampled_from([f"text-{number}" for number in range(400)])


@given(st.integers(0, 300), st.lists(st.tuples(TEXTS, st.integers(0, 2)), max_size=300))
def test_it_does_what_a_dict_does_and_no_older_one_changes(built: int, changes: list[tuple[str, int]]) -> None:
    plain = {f"text-{number}": number for number in range(built)}
    made = text_map(dict(plain))
    first, before = made, dict(plain)
    for text, value in changes:
        if value:
            made, plain[text] = made.put(text, value), value
        elif plain.pop(text, None) is not None:
            made = made.changed({text: None})
    assert dict(made.items()) == plain
    assert (len(made), sorted(made.values())) == (len(plain), sorted(plain.values()))
    assert all(made.get(f"text-{number}") == plain.get(f"text-{number}") for number in range(400))
    assert dict(first.items()) == before


def test_it_grows_one_by_one_to_any_size_and_shares_what_it_can() -> None:
    made: TextMap[int] = text_map({})
    for number in range(50_000):
        made = made.put(f"v{number}", number)
    assert len(made) == 50_000
    assert all(made.get(f"v{number}") == number for number in range(50_000))
    changed = made.put("v7", -1)
    buckets, others = ({id(bucket): bucket for bucket in every(which)} for which in (made, changed))
    assert all(len(bucket.entries) <= BUCKET_ENTRIES for bucket in buckets.values())
    assert len(others.keys() - buckets.keys()) == 1, "one bucket is made anew"
    rows = {id(row) for row in made._rows}
    assert sum(id(row) not in rows for row in changed._rows) <= 2


def every(made: TextMap[int]) -> list[TextBucket[int]]:
    return [bucket for row in made._rows for bucket in row]


class SameHash(str):
    """Texts that no number of bits tells apart."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 5


def test_texts_of_one_hash_do_not_double_the_table_for_ever() -> None:
    made = TextMap(
        ((TextBucket(24, {SameHash(f"t{number}"): number for number in range(BUCKET_ENTRIES)}),),), BUCKET_ENTRIES
    )
    made = made.put(SameHash("one more"), 1)
    assert len(made) == BUCKET_ENTRIES + 1
    assert len(every(made)) == 1


def test_many_entries_that_come_at_once_are_spread_over_buckets() -> None:
    made = text_map({"first": 0}).changed({f"v{number}": number for number in range(20_000)})
    assert len(made) == len(dict(made.items())) == 20_001
    assert max(len(bucket.entries) for bucket in made._buckets()) <= BUCKET_ENTRIES


def test_notes_stay_with_their_entries_until_a_neighbour_changes() -> None:
    entries = {f"v{number}": number for number in range(1000)}
    made = text_map(entries, array("Q", [1000 + number for number in range(1000)]))
    assert all(note == 1000 + value for _, value, note in made.noted())
    assert made.note_of("v123") == 1123
    changed = made.put("v123", -1)
    assert changed.note_of("v123") == 0
    # The neighbours, and no others: a bucket that is built at once may be somewhat fuller than one that grew.
    assert sum(note == 0 for _, _, note in changed.noted()) <= 2 * BUCKET_ENTRIES
