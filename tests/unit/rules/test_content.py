"""Versions by content: equal rules have one canonical form, and a sum names all of them whatever their order."""

from typing import Any

import pytest
from headgate.limiter.limit import Algorithm, Limit, OnError, Scope, TrafficClass, Unit
from headgate.rules.content import (
    added,
    canonical,
    domain_number,
    fields_of,
    number_of_rule,
    order_number,
    settings_number,
    version_of,
)
from headgate.rules.model import RuleContent
from headgate.rules.request_limits import RequestLimits

MINUTE = Limit(5, Unit.MINUTE)
BASE: dict[str, Any] = {"requests_per_unit": 5, "unit": "minute"}


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (RuleContent(), {}),
        (RuleContent(None, shared=True), {"share_threshold": True}),
        (RuleContent(MINUTE), {"rate_limit": BASE}),
        (
            RuleContent(Limit(9, Unit.UNKNOWN, unlimited=True, name="n")),
            {"rate_limit": {"name": "n", "unlimited": True}},
        ),
        (
            RuleContent(Limit(5, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=5)),
            {"rate_limit": {**BASE, "algorithm": "gcra"}},
        ),
        (
            RuleContent(Limit(5, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=7, precision_millionths=1_500)),
            {"rate_limit": {**BASE, "algorithm": "gcra", "burst": 7, "precision": "0.15%"}},
        ),
        (
            RuleContent(Limit(5, Unit.MINUTE, traffic_class=TrafficClass.PAID, on_error=OnError.OPEN)),
            {"rate_limit": {**BASE, "class": "paid"}},
        ),
        (
            RuleContent(Limit(5, Unit.MINUTE, traffic_class=TrafficClass.PAID, on_error=OnError.LOCAL)),
            {"rate_limit": {**BASE, "class": "paid", "on_error": "local"}},
        ),
        (
            RuleContent(Limit(5, Unit.SECOND, scope=Scope.GLOBAL, overdraft=False, refund=True)),
            {
                "rate_limit": {
                    **BASE,
                    "unit": "second",
                    "scope": "global",
                    "force_global": True,
                    "overdraft": False,
                    "refund": True,
                }
            },
        ),
        (
            RuleContent(Limit(5, Unit.MINUTE, shadow=True, quota=True, replaces=("a", "b"), metadata={"x": [1]})),
            {
                "rate_limit": {**BASE, "replaces": [{"name": "a"}, {"name": "b"}]},
                "shadow_mode": True,
                "quota_mode": True,
                "metadata": {"x": [1]},
            },
        ),
    ],
)
def test_the_canonical_form_leaves_out_what_is_so_by_default(rule: RuleContent, fields: dict[str, Any]) -> None:
    assert fields_of(rule) == fields
    assert canonical(fields_of(rule)) == canonical(dict(reversed(fields.items())))


PATH = (("user", "ann"),)
ITEMS = {
    "rule": number_of_rule(PATH, RuleContent(MINUTE)),
    "another value": number_of_rule((("user", "bob"),), RuleContent(MINUTE)),
    "the key alone": number_of_rule((("user", ""),), RuleContent(MINUTE)),
    "two levels": number_of_rule((("user", "ann"), ("path", "")), RuleContent(MINUTE)),
    "levels that run together": number_of_rule((("user", "annpath"),), RuleContent(MINUTE)),
    "another limit": number_of_rule(PATH, RuleContent(Limit(6, Unit.MINUTE))),
    "no limit": number_of_rule(PATH, RuleContent()),
    "an order": order_number((), "user", ["a*", "*b"]),
    "another order": order_number((), "user", ["*b", "a*"]),
    "an order further down": order_number(PATH, "user", ["a*", "*b"]),
    "settings": settings_number("user", None),
    "other settings": settings_number("", RequestLimits.LOWER),
    "a domain": domain_number("d", "v1"),
    "its other version": domain_number("d", "v2"),
}


def test_no_two_items_have_one_number() -> None:
    assert len(set(ITEMS.values())) == len(ITEMS)
    assert all(0 < number < 2**2048 for number in ITEMS.values())


def test_whatever_has_no_meaning_has_no_number() -> None:
    assert order_number((), "user", ["a*"]) == order_number((), "user", []) == settings_number("", None) == 0


def test_a_sum_has_no_order_and_takes_back_what_was_added() -> None:
    one, two, three = list(ITEMS.values())[:3]
    assert added(added(added(0, one), two), three) == added(0, three, one, two)
    assert added(added(0, one, two), -one) == added(0, two)
    assert len({version_of(added(0, *some)) for some in ([], [one], [two], [one, two], [one, one])}) == 5


EXPECTED = "74f1b711d29a9077c8e827f4c837627b63f19477f327b45110a21155cbda89d2"


def test_versions_stay_what_they_are() -> None:
    """Nodes of two versions of the program must agree: who changes one of these must mean it."""
    assert version_of(0) == "5341e6b2646979a70e57653007a1f310169421ec9bdd9f1a5648f75ade005af1"
    assert version_of(added(0, ITEMS["rule"], ITEMS["an order"], ITEMS["settings"])) == EXPECTED
