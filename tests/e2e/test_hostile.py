"""Callers who mean harm, against a real process: memory stays bounded, and nobody's limit is lifted."""

from pathlib import Path

import pytest
from headgate_client import Client, RateLimitError

from tests.support.headgate import Headgate, serve, write_rules

RULES = """
domain: edge
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 3}
- key: wide
  rate_limit: {unit: hour, requests_per_unit: 1000}
"""
MB = 1_000_000


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


def resident_bytes(node: Headgate) -> float:
    name = "headgate_process_resident_memory_bytes "
    (line,) = [line for line in node.get("/metrics").body.decode().splitlines() if line.startswith(name)]
    return float(line.removeprefix(name))


def test_long_values_cost_no_more_memory_than_short_ones(rules: Path) -> None:
    """3,000 different values of 50 KB: kept as they are, they would be 150 MB, and as much again for plans."""
    with serve(rules) as headgate, Client(headgate.grpc, timeout_s=60) as client:
        before = resident_bytes(headgate)
        for number in range(3_000):
            for _ in range(1 + number % 2):
                assert client.should_rate_limit("edge", [{"wide": f"{number}" + "x" * 50_000}]).admitted
        assert resident_bytes(headgate) - before < 50 * MB


def test_a_flood_of_new_values_does_not_reset_who_is_over_a_limit(rules: Path) -> None:
    with serve(rules, "--max-cells", "1000") as headgate, Client(headgate.grpc, timeout_s=60) as client:
        for _ in range(3):
            assert client.should_rate_limit("edge", [{"user": "mallory"}]).admitted
        assert not client.should_rate_limit("edge", [{"user": "mallory"}]).admitted
        for number in range(3_000):
            client.should_rate_limit("edge", [{"wide": f"flood{number}"}])
        assert not client.should_rate_limit("edge", [{"user": "mallory"}]).admitted


@pytest.mark.parametrize("descriptors", [[{"wide": "x"}] * 33, [{f"k{number}": "x" for number in range(33)}]])
def test_a_request_that_is_too_wide_is_refused_and_the_process_goes_on(
    rules: Path, descriptors: list[dict[str, str]]
) -> None:
    with serve(rules) as headgate, Client(headgate.grpc, timeout_s=60) as client:
        with pytest.raises(RateLimitError, match="accepted are 1 to 32"):
            client.should_rate_limit("edge", descriptors)
        assert client.should_rate_limit("edge", [{"wide": "x"}]).admitted
