"""Messages about quotas to bytes and back."""

import pytest
from headgate.errors import BadRequest
from headgate.quota.codec import MAX_QUOTA_ENTRIES, pack_mark, pack_quota, unpack_mark, unpack_quota
from headgate.quota.membership import Mark
from headgate.quota.message import QuotaEntry, QuotaMessage
from headgate.v1 import exchange_pb2 as wire
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(0, 2**64 - 1)
MARKS = st.builds(Mark, NUMBERS, NUMBERS)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=5).map(tuple)
QUOTA_ENTRIES = st.builds(QuotaEntry, st.binary(max_size=80), NUMBERS, NUMBERS, NUMBERS, ROWS)
QUOTAS = st.builds(
    QuotaMessage,
    st.binary(max_size=8),
    MARKS,
    MARKS,
    st.lists(NUMBERS, max_size=5).map(tuple),
    st.booleans(),
    NUMBERS,
    st.booleans(),
    st.integers(-1, 2**62),
    st.lists(st.tuples(st.integers(0, 2**32 - 1), NUMBERS), max_size=5).map(tuple),
    st.lists(QUOTA_ENTRIES, max_size=10).map(tuple),
)


@given(QUOTAS)
def test_a_message_comes_back_as_it_was(message: QuotaMessage) -> None:
    assert unpack_quota(pack_quota(message)) == message


@given(MARKS)
def test_a_mark_comes_back_as_it_was(mark: Mark) -> None:
    """One that says nothing is none."""
    assert unpack_mark(pack_mark(mark)) == (mark if any(mark) else None)


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        (wire.Quota(entries=[wire.QuotaEntry()] * (MAX_QUOTA_ENTRIES + 1)), "1001 quotas: at most 1000"),
        (wire.Quota(silent_region=[1]), "different lengths"),
        (wire.Quota(entries=[wire.QuotaEntry(rows=[1, 2, 3])]), "3 numbers of gifts: four for each"),
    ],
)
def test_quotas_that_are_too_many_or_cut_off_are_refused(quota: wire.Quota, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        unpack_quota(quota.SerializeToString())
