"""docs/rules.md says what the program does: its examples load, its messages are the real ones."""

import re
from pathlib import Path
from typing import Any

import yaml
from headgate.rules.grammar import DESCRIPTOR, RATE_LIMIT, ROOT

from tests.unit.rules.support import FIXTURES, compile_text

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
ERRORS: list[dict[str, Any]] = yaml.safe_load((FIXTURES / "errors.yaml").read_text())


def test_the_example_loads() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    rules = compile_text(example)
    assert rules.match("edge", [("path", "/login"), ("user", "alice")]) is not None


def test_every_message_in_the_table_is_one_that_is_given() -> None:
    table = PAGE.split("| reason, by example |")[1]
    messages = [message.strip() for message in re.findall(r"``(.*?[^`])``(?!`)", table)]
    given = {line.split(": ", 1)[1] for case in ERRORS for line in case["problems"].splitlines()}
    assert len(messages) > 40
    assert [message for message in messages if message not in given] == []


def test_every_field_is_described() -> None:
    fields = {*ROOT.keys, *DESCRIPTOR.keys, *RATE_LIMIT.keys}
    assert {field for field in fields if f"`{field}`" not in PAGE} == set()
