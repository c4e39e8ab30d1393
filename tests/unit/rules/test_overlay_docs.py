"""docs/overlay.md and the schema for editors say what the program does."""

import json
import re
from typing import Any

import pytest
import yaml
from headgate.rules.grammar import OVERLAY_ENTRY, OVERLAY_FLAGS, OVERLAY_LIMIT_FIELDS
from headgate.rules.overlay_reader import read_overlay
from headgate.rules.schema import overlay_schema
from headgate.rules.source import SourceFile
from jsonschema import Draft7Validator

from tests.support.source import ROOT
from tests.unit.rules.test_overlay import CASES, FIELDS, GATEWAY, laid

PAGE = (ROOT / "docs" / "overlay.md").read_text()
EXAMPLE = (ROOT / "examples" / "overlay" / "gateway.yaml").read_text()
VALIDATOR = Draft7Validator(overlay_schema())


def problems(text: str) -> list[str]:
    return [str(problem) for problem in read_overlay([SourceFile("o.yaml", text.encode(), "/overlay/o.yaml")])[1]]


def test_the_example_of_the_page_lies_over_a_route() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    rules = laid(text, GATEWAY.replace("default/checkout", "shop/checkout"))
    assert (rules.overlay.unmatched, rules.overlay.clashes) == ((), ())
    assert [sorted(rule.origins) for rule in rules.rules()] == [["algorithm", "on_error"]] * 2 + [[]]


def test_the_paths_of_the_page_are_paths() -> None:
    paths = re.findall(r"\| `path: (.*?)` \|", PAGE)
    assert len(paths) == 5
    assert [problems(f"overlay: [{{path: {path}, on_error: open}}]") for path in paths] == [[]] * 5


def test_every_message_in_the_table_is_one_that_is_given() -> None:
    messages = [
        message.strip() for message in re.findall(r"``(.*?[^`])``(?!`)", PAGE.split("| message, by example |")[1])
    ]
    given = {
        line.split(": ", 1)[1] for case in CASES for line in case["problems"].replace("FIELDS", FIELDS).splitlines()
    }
    assert len(messages) >= 10
    assert [message for message in messages if message not in given] == []


def test_every_field_is_described() -> None:
    assert ", ".join((*OVERLAY_LIMIT_FIELDS, *OVERLAY_FLAGS)) == FIELDS
    assert {name for name in OVERLAY_ENTRY.keys if f"`{name}`" not in PAGE} == set()


def test_the_schema_is_what_the_module_writes_and_explains_every_field() -> None:
    Draft7Validator.check_schema(overlay_schema())
    assert json.loads((ROOT / "docs" / "overlay.schema.json").read_text()) == overlay_schema(), "run `make docs`"
    properties = overlay_schema()["$defs"]["entry"]["properties"]
    assert set(properties) == set(OVERLAY_ENTRY.keys)
    assert [name for name, field in properties.items() if "description" not in field] == []


def test_schema_and_reader_accept_the_example() -> None:
    assert problems(EXAMPLE) == []
    assert list(VALIDATOR.iter_errors(yaml.safe_load(EXAMPLE))) == []


@pytest.mark.parametrize("name", ["misspelled", "a field of the rule", "a word that is none", "no list", "no mapping"])
def test_a_mistake_is_marked_while_one_types(name: str) -> None:
    (case,) = (item for item in CASES if item["name"] == name)
    read: Any = yaml.safe_load(case["overlay"])
    assert list(VALIDATOR.iter_errors(read))
