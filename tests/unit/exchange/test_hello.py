"""Who may speak with whom, and in which version."""

import pytest
from headgate.errors import BadRequest, Misconfigured
from headgate.exchange.hello import Hello, Regions, Versions, check_direction, choose_version

US = Regions("us", frozenset({"eu", "ap"}))


@pytest.mark.parametrize(
    ("theirs", "ours", "chosen"),
    [((1, 1), (1, 1), 1), ((1, 2), (1, 1), 1), ((1, 1), (1, 2), 1), ((1, 3), (2, 5), 3), ((2, 9), (1, 2), 2)],
)
def test_the_highest_common_version_is_spoken(theirs: Versions, ours: Versions, chosen: int) -> None:
    assert choose_version(Versions(*theirs), Versions(*ours)) == chosen


@pytest.mark.parametrize(("theirs", "ours"), [((2, 3), (1, 1)), ((1, 1), (2, 3))])
def test_without_a_common_version_both_ranges_are_named(theirs: Versions, ours: Versions) -> None:
    with pytest.raises(Misconfigured) as caught:
        choose_version(Versions(*theirs), Versions(*ours))
    assert f"you speak {Versions(*theirs)}, this region {Versions(*ours)}" in str(caught.value)
    assert "2 to 3" in str(caught.value)


@pytest.mark.parametrize("range_", [(0, 1), (2, 1), (0, 0)])
def test_a_range_that_is_none_is_refused(range_: Versions) -> None:
    with pytest.raises(BadRequest, match="expected a range"):
        choose_version(Versions(*range_), Versions(1, 1))


@pytest.mark.parametrize(
    ("region", "to", "message"),
    [
        ("eu", "ap", "this is region 'us', and 'eu' means 'ap': correct the address of --peer ap=… there"),
        ("us", "us", "you call yourself 'us', which is this region's own name: correct --region"),
        (
            "eu2",
            "us",
            r"'eu2' is no peer of region 'us' \(its peers: ap, eu\): correct --region there, or add --peer eu2=",
        ),
    ],
)
def test_a_peer_that_is_set_up_wrongly_is_told_what_to_correct(region: str, to: str, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        check_direction(Hello(region, to, Versions(1, 1), (), ""), US)


def test_a_peer_that_means_us_is_heard_whatever_its_set_of_regions() -> None:
    check_direction(Hello("eu", "us", Versions(1, 1), ("eu", "us", "sa"), ""), US)
    assert US.all == ("ap", "eu", "us")
