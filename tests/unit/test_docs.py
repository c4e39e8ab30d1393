"""The docs point at what is there: links, tests, planted bugs, cases, terms and places in the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from headgate.clock import SystemClock
from headgate.exchange.peers import PeerStatus
from headgate.exchange.site import ExchangeSite
from headgate.limiter.limit import DEFAULT_PRECISION_MILLIONTHS
from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.memory import MemoryOrigin
from headgate.quota.keeper import QuotaKeeper
from headgate.region.active import ActiveRegions
from headgate.region.instruments import register_active
from headgate.region.session import USABLE_S
from headgate.runtime.regions import register_exchange
from headgate.telemetry.metrics import Metrics
from structlog import get_logger

from tests.conformance.origin.cases import CASES
from tests.simulation import mutations
from tests.simulation.test_regions import FOUND_BY as BETWEEN_REGIONS
from tests.support.classes_page import classes_of, classes_page
from tests.support.names import code_names, name_exists
from tests.support.source import docstrings, modules
from tests.unit.exchange.two_origins import ChosenKeys

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "server" / "headgate"
ELSEWHERE = [page for name in ("charts", "examples", "client") for page in (ROOT / name).rglob("*.md")]
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ELSEWHERE])
CONVERGENCE = (DOCS / "convergence.md").read_text()
GLOSSARY = (DOCS / "glossary.md").read_text()
ARCHITECTURE = (DOCS / "architecture.md").read_text()
SOURCES = {path: path.read_text() for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.lua")])}
GENERATED = {DOCS / name for name in ("classes.md", "configuration.md", "metrics.md")}
"""Pages that other tests compare with the code."""
OF_OTHERS = {
    "Envoy's configuration and statistics": {
        "RateLimit.rate_limits",
        "common_http_protocol_options",
        "disable_key",
        "failure_mode_deny_percent",
        "header_value_match",
        "initial_metadata",
        "max_requests_per_connection",
        "query_parameter_value_match",
        "ratelimit.failure_mode_allowed",
        "request_type",
        "use_remote_address",
        "vh_rate_limits",
        "xff_num_trusted_hops",
    },
    "web frameworks and their servers": {"X_Forwarded_For", "get_asgi_application", "preload_app"},
    "Kubernetes": {"data.volume.hostPath"},
    "values of Envoy AI Gateway's chart": {"rateLimiter.enabled", "rateLimiter.image.repository"},
    "users in examples": {"user_alice"},
}
"""Names in backticks that belong to other software, by whose they are."""
ALLOWED = {name for names in OF_OTHERS.values() for name in names}
CASE_NAMES = {case.name for case in CASES}
MUTATIONS = {mutation.__name__ for mutation in (*mutations.ALL, *mutations.OF_THEIR_OWN, *BETWEEN_REGIONS)}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """Without blocks of code, in which brackets are no links and signs no headings."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them: lower case, no punctuation, dashes for spaces."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> Iterator[tuple[str, str]]:
    """Path and anchor of every relative link or picture."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def is_broken(page: Path, path: str, anchor: str) -> bool:
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [link for link in links(page.read_text()) if is_broken(page, *link)] == []


def test_the_readme_leads_to_every_page() -> None:
    """Those about one framework of the client stand below docs/client.md, which leads to them."""
    for page, folder in ((ROOT / "README.md", ROOT / "docs"), (ROOT / "docs" / "client.md", ROOT / "docs" / "client")):
        linked = {(page.parent / path).resolve() for path, _ in links(page.read_text())}
        assert set(folder.glob("*.md")) <= linked


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page.read_text())
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not any(re.search(rf"def {test}\b", path.read_text()) for path in (ROOT / "tests").rglob(file))
    ]
    assert missing == []


# The theory


def rules() -> dict[str, str]:
    """The numbered rules of the page, each with its text up to the next one."""
    parts = re.split(r"^\*\*(\d\.\d+) ", CONVERGENCE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("number", rules())
def test_every_rule_has_the_history_that_breaks_a_simpler_one_and_what_plays_it(number: str) -> None:
    text = rules()[number]
    assert "- *Simpler:*" in text
    played = re.split(r"\n\n", text.split("- *Played by:*")[1])[0]
    quoted = set(re.findall(r"`(\w+)`", played))
    assert quoted <= MUTATIONS, "what is planted"
    cases = {" ".join(case.split()) for case in re.findall(r"“(.*?)”", played, re.DOTALL)}
    assert cases <= CASE_NAMES
    assert quoted or cases or "::" in played


def test_every_planted_bug_plays_a_rule() -> None:
    assert {name for name in MUTATIONS if f"`{name}`" not in CONVERGENCE} == set()


def test_the_sections_that_modules_refer_to_are_there() -> None:
    headings = set(re.findall(r"^## (\d+)\. ", CONVERGENCE, re.MULTILINE))
    referred = set()
    for text in SOURCES.values():
        for numbers in re.findall(r"docs/convergence\.md, sections? ([\d, and to]+)", text):
            referred |= set(re.findall(r"\d+", numbers))
    assert referred
    assert referred <= headings


# What operators look at


def test_every_metric_of_the_exchange_is_explained() -> None:
    metrics, clock = Metrics(node="node", region="eu"), SystemClock()
    site = ExchangeSite("eu", MemoryOrigin(clock), b"", clock, Random(1), get_logger(), ChosenKeys())
    quotas = QuotaKeeper(site, {})
    exchange: Any = SimpleNamespace(
        exchanger=SimpleNamespace(peers={"us": PeerStatus("us", "")}, quotas=quotas),
        sent_bytes=lambda peer: 0,
        received_bytes=lambda peer: 0,
        slowed_s=lambda peer: 0.0,
    )
    register_exchange(metrics, exchange, clock)
    register_active(metrics, ActiveRegions(LimitsOfRegion(2), 2, clock, lambda active: None))
    named = set(re.findall(r"^(headgate_\w+)", metrics.render().decode(), re.MULTILINE))
    assert len(named) > 15
    page = (DOCS / "regions.md").read_text()
    assert {name for name in named if not re.search(rf"`{name}\b", page)} == set()


def test_headers_are_said_to_be_approximate_wherever_callers_read_of_them() -> None:
    """With the bound and the age, which are those of the code."""
    page = (DOCS / "envoy.md").read_text()
    (said,) = re.findall(r"^\*\*Headers are approximate: .*?(?=^#)", page, re.MULTILINE | re.DOTALL)
    assert f"{DEFAULT_PRECISION_MILLIONTHS / 10_000:g}% unless" in said
    assert f"at most {USABLE_S:g} s ago" in said
    for name in ("envoy.md", "client.md", "client/asgi.md", "configuration.md"):
        assert "a guide, not a precise count" in (DOCS / name).read_text(), name


# The words


def exists(name: str) -> bool:
    """A path, a class's member, or a word of the source."""
    if "/" in name:
        return (ROOT / name).exists() or (SOURCE / name).exists()
    owner, _, member = name.rpartition(".")
    if not owner:
        return any(re.search(rf"\b{re.escape(name)}\b", text) for text in SOURCES.values())
    return any(re.search(rf"\b{member}\b", body) for text in SOURCES.values() for body in bodies(text, owner))


def bodies(text: str, name: str) -> list[str]:
    """What belongs to the classes of this name."""
    return re.findall(rf"^class {name}\b.*\n((?:[ \t].*\n|\n)*)", text, re.MULTILINE)


def rows(page: str, *columns: str) -> Iterator[list[str]]:
    """Of all tables whose first columns are these."""
    head = "| " + " | ".join(columns)
    for table in page.split(head)[1:]:
        for line in table.split("\n\n")[0].splitlines()[2:]:
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_term_of_the_glossary_is_in_the_code() -> None:
    terms = list(rows(GLOSSARY, "term", "in the code"))
    assert len(terms) > 70
    names = [(row[0], name) for row in terms for name in re.findall(r"`([^`]+)`", row[1])]
    assert [(term, name) for term, name in names if not exists(name)] == []
    assert [row[0] for row in terms if "`" not in row[1]] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in GENERATED and page.name != "CHANGELOG.md"], ids=name_of
)
def test_every_name_in_backticks_exists(page: Path) -> None:
    """The changelog alone speaks of names that are gone."""
    assert [name for name in code_names(page.read_text()) if name not in ALLOWED and not name_exists(name)] == []


def test_every_name_in_backticks_of_a_docstring_exists() -> None:
    named = [(path, name) for path, tree in modules() for _, text in docstrings(tree) for name in code_names(text)]
    assert len(named) > 100
    assert [(path, name) for path, name in named if name not in ALLOWED and not name_exists(name)] == []


def test_every_name_of_others_is_needed() -> None:
    texts = [page.read_text() for page in PAGES] + [text for _, tree in modules() for _, text in docstrings(tree)]
    named = {name for text in texts for name in code_names(text)}
    assert {name for name in ALLOWED if name not in named or name_exists(name)} == set()


@pytest.mark.parametrize(
    ("span", "names"),
    [
        ("new_shared_counter", ["new_shared_counter"]),
        ("WindowRecord._come_to", ["WindowRecord._come_to"]),
        ("region/lane.py", ["region/lane.py"]),
        ("rows.kept()", ["rows.kept"]),
        ("keep()", ["keep"]),
        ("ShardLink", ["ShardLink"]),
        ("HEADGATE_GRPC", ["HEADGATE_GRPC"]),
        ("limit", []),
        ("headgate.yaml", []),
        ("--max-cells 5", []),
        ("a_b = 1", []),
    ],
)
def test_what_is_taken_for_a_name_of_the_code(span: str, names: list[str]) -> None:
    assert list(code_names(f"Reads `{span}` first.\n```\n`in_a_block`\n```\n")) == names


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("new_shared_counter", False),
        ("region/no_such_module.py", False),
        ("errors.py", True),
        ("server/headgate/errors.py", True),
        ("rules/store.py", True),
        ("SystemClock.now_ms", True),
        ("SystemClock.read_hands", False),
        # From a class that it inherits from.
        ("NotFound.status", True),
        # A metric and a setting's variable, which the code puts together; and such as are none.
        ("headgate_decisions_total", True),
        ("headgate_guesses_total", False),
        ("HEADGATE_GRPC", True),
        ("HEADGATE_GUESS", False),
        # A word of a docstring alone, there and here.
        ("user_alice", False),
    ],
)
def test_a_name_that_is_gone_is_found(name: str, there: bool) -> None:
    assert name_exists(name) is there


def test_every_public_class_is_in_the_list_of_classes() -> None:
    assert (DOCS / "classes.md").read_text() == classes_page(), "run: make docs"


def test_a_class_is_listed_with_the_first_sentence_of_its_docstring() -> None:
    text = '''class A:
    """One run's 0.5 of
    a key. Never falls.

    More."""
class _B: ...
'''
    assert classes_of("a.py", ast.parse(text)) == [("A", "a.py", "One run's 0.5 of a key.")]


def test_every_short_name_of_the_glossary_is_in_the_lua() -> None:
    lua = "\n".join(text for path, text in SOURCES.items() if path.suffix == ".lua")
    names = [name for row in rows(GLOSSARY, "Lua", "means") for name in re.findall(r"`(\w+)`", row[0])]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"\b{name}\b", lua)] == []


def test_the_glossary_lists_the_fields_of_a_record_as_the_scripts_do() -> None:
    head = (SOURCE / "origin" / "lua" / "common.lua").read_text().split("with one HSET:\n")[1].split("-- The same")[0]
    fields = re.findall(r"^--   (\S+) +(.*(?:\n--    .*)*)", head, re.MULTILINE)
    in_lua = {name: " ".join(text.replace("--", "").split()) for name, text in fields}
    assert len(in_lua) == 5
    assert {name.strip("`"): text for name, text in rows(GLOSSARY, "field", "holds")} == in_lua


def test_every_place_that_the_architecture_names_is_there() -> None:
    places = re.findall(r"`([\w/]+\.(?:py|lua))` `([\w.]+)`", ARCHITECTURE)
    assert len(places) > 30
    missing = []
    for file, name in places:
        path = SOURCE / file
        text = path.read_text() if path.exists() else ""
        owner, _, member = name.rpartition(".")
        within = bodies(text, owner) if owner else [text]
        if not any(re.search(rf"\b{member}\b", body) for body in within):
            missing.append((file, name))
    assert missing == []
