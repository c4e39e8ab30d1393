"""The JSON Schema for editors: made from the grammar, never stricter than the reader, and it finds common mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate.rules.grammar import DESCRIPTOR, RATE_LIMIT, REPLACES, ROOT
from headgate.rules.schema import rules_schema
from jsonschema import Draft7Validator

from tests.support.source import ROOT as REPOSITORY
from tests.unit.rules.support import FIXTURES, problems_of

VALIDATOR = Draft7Validator(rules_schema())
EXAMPLES = sorted(
    [*(REPOSITORY / "examples").glob("*rules*/*.yaml"), *(REPOSITORY / "examples").glob("*/rules/*.yaml")]
)
MATCHING = [
    case["rules"] for case in yaml.safe_load((FIXTURES / "matching.yaml").read_text()) if isinstance(case["rules"], str)
]


class AsEditorsRead(yaml.SafeLoader):
    """YAML as editors and JSON know it: a date is text."""


AsEditorsRead.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def found(text: str) -> list[str]:
    read = yaml.load(text, AsEditorsRead)  # noqa: S506 - a safe one
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(read)]


def test_the_page_is_what_the_module_writes() -> None:
    Draft7Validator.check_schema(rules_schema())
    assert json.loads((REPOSITORY / "docs" / "rules.schema.json").read_text()) == rules_schema(), "run `make docs`"


def test_every_field_of_the_grammar_is_there_and_explained() -> None:
    schema = rules_schema()
    levels = {**schema["$defs"], "root": schema}
    for level, shape in (
        ("root", ROOT),
        ("descriptor", DESCRIPTOR),
        ("rate_limit", RATE_LIMIT),
        ("replaces", REPLACES),
    ):
        properties = levels[level]["properties"]
        assert set(properties) == set(shape.keys)
        unexplained = [name for name, field in properties.items() if not field]
        assert unexplained == [], "a new field belongs into _FIELDS of rules/schema.py"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_examples_are_accepted(path: Path) -> None:
    assert found(path.read_text()) == []


@pytest.mark.parametrize("text", MATCHING)
def test_what_the_reader_accepts_is_accepted(text: str) -> None:
    if problems_of(text) == []:
        assert found(text) == []


LIMIT = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {{unit: minute, requests_per_unit: 5, {}}}\n"


@pytest.mark.parametrize(
    "text",
    [
        "descriptors: []",
        "domain: d\ndescriptors: {}",
        "domain: d\ndescriptor: []",
        "domain: d\ndescriptors: [{value: x}]",
        LIMIT.format("algorithm: leaky"),
        LIMIT.format("on_error: close"),
        LIMIT.format("scope: world"),
        LIMIT.format("class: gold"),
        LIMIT.format("burst: 0"),
        LIMIT.format("unit_multiplier: -1"),
        LIMIT.format("shadow_mode: true"),
        LIMIT.replace("minute", "fortnight").format("burst: 5"),
        LIMIT.replace("5", "'5'").format("scope: region"),
    ],
)
def test_a_mistake_is_marked_and_the_reader_agrees(text: str) -> None:
    assert found(text)
    assert problems_of(text)


# The hook for pre-commit


def committed(place: Path, rules: str) -> Path:
    (place / "limits").mkdir(parents=True)
    (place / "limits" / "edge.yaml").write_text(rules)
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    # As published, but for where the command comes from: this environment instead of a release.
    assert hook.pop("additional_dependencies") == ["./client"], "else it wants a client that may not be published"
    local: dict[str, Any] = {**hook, "language": "system", "args": ["limits/"]}
    (place / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": [local]}]}))
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=place, check=True, timeout=60)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(("requests", "status"), [(5, 0), (-5, 1)])
def test_the_hook_refuses_rules_that_would_not_load(tmp_path: Path, requests: int, status: int) -> None:
    rules = f"domain: d\ndescriptors:\n- key: k\n  rate_limit: {{unit: day, requests_per_unit: {requests}}}\n"
    programs = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ended = subprocess.run(
        [programs / "pre-commit", "run", "--all-files"],
        cwd=committed(tmp_path / "repository", rules),
        env={**kept, "PATH": f"{programs}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert ("limits/edge.yaml:4: `requests_per_unit` must be" in ended.stdout) == bool(status)
