"""How the scripts are put together."""

from headgate.origin.operations.call import Call
from headgate.origin.redis_origin.cluster import GROUP_SLOTS, GROUPS, TAGS
from headgate.origin.redis_origin.scripts import Scripts

from tests.support.operations import OPERATIONS


def test_checks_are_comments_in_production_and_code_under_test() -> None:
    def lines_with_checks(text: bytes) -> list[bytes]:
        return [line.strip() for line in text.splitlines() if b"check_sums(" in line]

    production, checked = (lines_with_checks(Scripts(checks=checks).of(Call.lua).text) for checks in (False, True))
    assert len(production) == len(checked) == 2, "the check itself, and where it is made"
    assert all(line.startswith(b"--") for line in production)
    assert not any(line.startswith(b"--") for line in checked)


def test_every_script_asks_for_the_time_first() -> None:
    scripts = Scripts()
    for script in (scripts.of(operation.lua) for operation in OPERATIONS):
        calls = [line for line in script.text.splitlines() if b"call('" in line and not line.startswith(b"--")]
        assert b"TIME" in calls[0], script.name


def test_groups_lie_evenly_over_the_slots_and_do_not_move() -> None:
    """Written down: other tags would move every key of a running Cluster."""
    assert [slot * GROUPS // 16384 for slot in GROUP_SLOTS] == list(range(GROUPS))
    assert TAGS[:4] == [b"10", b"18", b"113", b"342"]
