"""Places of keys are found from the keys alone, as requests place them."""

import pytest
from headgate.rules.key_places import KeyPlaces
from headgate.rules.keys import override_key

from tests.unit.rules.support import compile_text

RULES = """
domain: edge
shard_by: tenant
descriptors:
- key: tenant
  rate_limit: {unit: day, requests_per_unit: 10}
  descriptors:
  - key: path
    value: /api/*
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: path
    value: /shared/*
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 10}
- key: user
  rate_limit: {unit: day, requests_per_unit: 10}
"""


@pytest.mark.parametrize(
    "entries",
    [
        [("tenant", "acme")],
        [("tenant", "acme"), ("path", "/api/x")],
        [("tenant", "a" * 500), ("path", "/shared/x")],
        [("user", "alice")],
    ],
)
def test_a_key_lies_where_its_requests_put_it(entries: list[tuple[str, str]]) -> None:
    rules = compile_text(RULES)
    match = rules.match("edge", entries)
    assert match is not None
    placed = rules.domains["edge"].shard_key(entries)
    assert KeyPlaces(lambda: rules).place_of(match.key) == (match.key if placed is None else placed)


def test_keys_of_request_limits_and_of_nobody_s_rules() -> None:
    rules = compile_text(RULES)
    entries, places = [("user", "alice"), ("tenant", "acme")], KeyPlaces(lambda: rules)
    assert places.place_of(override_key("edge", entries, 1_000)) == rules.domains["edge"].shard_key(entries)
    for key in (override_key("elsewhere", entries, 1_000), b"", b"no key", b"4:edge", b"4:edge1:k6:tenant"):
        assert places.place_of(key) == key
