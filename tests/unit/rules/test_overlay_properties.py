"""An overlay does what the same fields written into the rules do, and nothing to rules that it does not name."""

import re
from typing import Any

import yaml
from hypothesis import given, target
from hypothesis import strategies as st

from tests.unit.rules.test_overlay import laid, limits

KEYS = ("a", "ab", "b")
VALUES = ("", "x", "xy", "x*")
OWN = st.fixed_dictionaries(
    {},
    optional={
        "algorithm": st.sampled_from(("sliding_window", "fixed_window")),
        "precision": st.sampled_from(("0", "1%")),
        "on_error": st.sampled_from(("local", "open", "closed")),
        "class": st.sampled_from(("abuse", "paid")),
        "scope": st.sampled_from(("region", "cell")),
    },
)
"""Fields that go with each other and with any limit."""
BESIDE = st.fixed_dictionaries({}, optional={"shadow_mode": st.booleans(), "detailed_metric": st.booleans()})

Rule = dict[str, Any]
Steps = tuple[tuple[str, str], ...]


def rules(depth: int) -> st.SearchStrategy[list[Rule]]:
    below = st.just([]) if depth == 0 else rules(depth - 1)
    name = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES))
    limit = st.none() | st.tuples(st.integers(1, 2), OWN)
    rule = st.builds(_rule, name, limit, BESIDE, below)
    return st.lists(rule, max_size=3, unique_by=lambda rule: (rule["key"], rule.get("value", "")))


def _rule(name: tuple[str, str], limit: Any, beside: dict[str, bool], below: list[Rule]) -> Rule:
    rule: Rule = {"key": name[0], **({"value": name[1]} if name[1] else {}), **beside}
    if limit is not None:
        rule["rate_limit"] = {"unit": "minute", "requests_per_unit": limit[0], **limit[1]}
    return {**rule, "descriptors": below} if below else rule


STEP = st.tuples(st.sampled_from((*KEYS, "*", "a*", "*b")), st.sampled_from((None, *VALUES, "*", "*y")))
ENTRIES = st.lists(
    st.tuples(st.sampled_from((None, "d", "e", "*")), st.lists(STEP, max_size=3), OWN, BESIDE).filter(
        lambda entry: entry[2] or entry[3]
    ),
    max_size=4,
)


def overlay_text(entries: list[Any]) -> str:
    written = []
    for domain, path, own, beside in entries:
        where = {} if domain is None else {"domain": domain}
        if path:
            where["path"] = " > ".join(key if value is None else f"{key}={value}" for key, value in path)
        written.append({**where, **own, **beside})
    return yaml.safe_dump({"overlay": written})


def glob(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def names(entry: Any, domain: str, steps: Steps) -> bool:
    where, path, *_ = entry
    return (
        (where is None or glob(where, domain))
        and len(path) <= len(steps)
        and all(
            glob(key, has_key) and (value is None or glob(value, has_value))
            for (key, value), (has_key, has_value) in zip(path, steps, strict=False)
        )
    )


def written_in(level: list[Rule], domain: str, above: Steps, entries: list[Any]) -> list[Rule]:
    """The same rules with the entries' fields written into those that they name."""
    copies = []
    for rule in level:
        steps = (*above, (rule["key"], rule.get("value", "")))
        copy = {**rule, "descriptors": written_in(rule.get("descriptors", []), domain, steps, entries)}
        for entry in entries:
            if names(entry, domain, steps) and "rate_limit" in copy:
                copy = {**copy, **entry[3], "rate_limit": {**copy["rate_limit"], **entry[2]}}
        copies.append(copy)
    return copies


def file(domain: str, level: list[Rule]) -> str:
    return yaml.safe_dump({"domain": domain, "descriptors": level})


@given(rules(2), rules(1), ENTRIES)
def test_an_overlay_does_what_the_same_fields_in_the_rules_do(d: list[Rule], e: list[Rule], entries: list[Any]) -> None:
    overlaid = laid(overlay_text(entries), file("d", d), file("e", e))
    expected = laid({}, file("d", written_in(d, "d", (), entries)), file("e", written_in(e, "e", (), entries)))
    assert limits(overlaid) == limits(expected)
    assert overlaid.overlay.clashes == ()
    target(len([rule for rule in overlaid.rules() if rule.origins]))


@given(rules(2), ENTRIES)
def test_an_overlay_that_names_no_rule_changes_nothing(d: list[Rule], entries: list[Any]) -> None:
    elsewhere = [("another", *entry[1:]) for entry in entries]
    overlaid, plain = laid(overlay_text(elsewhere), file("d", d)), laid({}, file("d", d))
    assert [(rule.rule, rule.limit, rule.place, rule.origins) for rule in overlaid.rules()] == [
        (rule.rule, rule.limit, rule.place, {}) for rule in plain.rules()
    ]
    assert len(overlaid.overlay.unmatched) == len(entries)
    for steps, _ in plain.domains["d"].limits():
        request = [(key, value or "v") for key, value in steps]
        assert overlaid.match("d", request) == plain.match("d", request)
