"""Lists of shards change in regions that have peers: what was counted is told, and quotas stay within their limit."""

from collections.abc import Callable

import pytest
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.simulation.history import Key
from headgate.simulation.regions.history import RegionAsk, RegionFault, RegionFaultKind, RegionsHistory
from headgate.simulation.runner import run

from tests.simulation import regions_mutations as mutations
from tests.simulation.mutations import without_pauses

STAYS = 2


def history(name: str, keys: tuple[Key, ...], asks: list[RegionAsk], *faults: RegionFault) -> RegionsHistory:
    return RegionsHistory(
        seed=1,
        name=name,
        regions=2,
        nodes=2,
        shards=2,
        exchangers=2,
        deadline_ms=200,
        link_ms=(1.0, 20.0),
        unix_ms=1_700_000_000_000,
        offsets_ms=(0, 0),
        keys=keys,
        asks=tuple(sorted(asks)),
        faults=faults,
        numbers=tuple(range(len(faults))),
    )


def listed(at_ms: int, for_ms: int, amount: int) -> RegionFault:
    return RegionFault(RegionFaultKind.REGION_LISTED, at_ms, for_ms, 0, amount=amount)


def untold() -> RegionsHistory:
    """The first region counts a while, is cut off before all of that was told, and then its keys move for good."""
    limit = Limit(100, Unit.DAY, scope=Scope.GLOBAL, regions=2)
    keys = tuple([Key(b"key%d" % number, limit) for number in range(8)])
    asks = [RegionAsk(4_000_000 + 1_000 * turn, 0, turn % 2, turn % len(keys), 1) for turn in range(50 * len(keys))]
    cut = RegionFault(RegionFaultKind.PARTITION, 3_000, 15_000, 0)
    return history("untold", keys, asks, cut, listed(6_000, 100, STAYS))


def given(*changes: RegionFault) -> RegionsHistory:
    """The first region gives most of each quota away, and then its list changes."""
    limit = Limit(300, Unit.SECOND, 10, scope=Scope.QUOTA, regions=2)
    keys = tuple([Key(b"quota%d" % number, limit) for number in range(6)])
    asks = [RegionAsk(8_000 * turn, 1, turn % 2, turn % len(keys), 1) for turn in range(6_000)]
    # A few there too: the record is where its key was before.
    asks += [RegionAsk(500_000 * turn, 0, turn % 2, turn % len(keys), 1) for turn in range(96)]
    return history("given", keys, asks, *changes)


def shifted(*changes: RegionFault) -> RegionsHistory:
    """The demand goes from the first region to the second while the first one's list is another one."""
    limit = Limit(300, Unit.SECOND, 6, scope=Scope.QUOTA, regions=2)
    keys = tuple([Key(b"quota%d" % number, limit) for number in range(4)])
    asks = [RegionAsk(8_000 * turn, int(turn > 3_500), turn % 2, turn % len(keys), 1) for turn in range(8_000)]
    return history("shifted", keys, asks, *changes)


HISTORIES = {
    "shifted": shifted(listed(22_000, 30_000, 1)),
    "untold": untold(),
    "given": given(listed(32_000, 100, STAYS)),
    "to and fro": given(listed(32_000, 8_000, 0)),
    "another first": given(listed(26_000, 8_000, 1)),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_nothing_is_violated(name: str) -> None:
    assert [violation.describe() for violation in run(HISTORIES[name]).violations] == []


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize(
    ("mutation", "name", "invariant"),
    [
        (mutations.what_moves_is_not_told_again, "untold", "agree"),
        (mutations.keys_come_before_their_shares, "given", "shares"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], name: str, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pauses(monkeypatch)
    mutation(monkeypatch)
    assert invariant in {violation.invariant for violation in run(HISTORIES[name]).violations}
