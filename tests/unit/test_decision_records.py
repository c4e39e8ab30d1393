"""docs/decisions: every record is in the index, with its number and title; and what is written by hand is listed."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.source import ROOT

FOLDER = ROOT / "docs" / "decisions"
INDEX = (FOLDER / "README.md").read_text()
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS: Final = ("Context", "Decision", "What it costs", "What would change it")
MOST_WORDS: Final = 400
"""A record is half a page: what is longer belongs onto a page of its own."""

DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text()
BY_HAND = DEPENDENCIES.partition("## Written by hand")[2]
ROUNDED: Final = 0.2
"""How far the lines of a row may be from what its files have; they change with every commit."""


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_is_in_the_index_under_its_number_and_title(record: Path) -> None:
    number = record.name[:4]
    title = re.match(rf"# {number}: (.+)\n", record.read_text())
    assert title is not None
    assert f"| [{number}]({record.name}) | {title[1]} |" in INDEX


def test_the_index_names_records_that_there_are_in_order() -> None:
    named = re.findall(r"^\| \[\d{4}\]\((.+?)\)", INDEX, re.MULTILINE)
    assert named == [record.name for record in RECORDS]
    assert len({name[:4] for name in named}) == len(named)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_is_short_and_has_the_four_parts(record: Path) -> None:
    text = record.read_text()
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
    assert len(text.split()) <= MOST_WORDS


def rows_by_hand() -> list[tuple[str, int]]:
    """Each row's places, below server/headgate, and its lines."""
    rows = re.findall(r"^\| [^|]+ \| ((?:`[\w/.]+`(?:, )?)+) \| ([\d,]+) \|", BY_HAND, re.MULTILINE)
    return [(places, int(lines.replace(",", ""))) for places, lines in rows]


@pytest.mark.parametrize(("places", "lines"), rows_by_hand())
def test_what_is_written_by_hand_is_there_and_about_as_long_as_is_said(places: str, lines: int) -> None:
    paths = [ROOT / "server" / "headgate" / place for place in re.findall(r"`(.+?)`", places)]
    assert [path for path in paths if not path.exists()] == []
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    assert sum(file.read_text().count("\n") for file in files) == pytest.approx(lines, rel=ROUNDED)


def test_every_row_of_what_is_written_by_hand_is_looked_at() -> None:
    table = [line for line in BY_HAND.splitlines() if line.startswith("| ") and "`" in line]
    assert len(table) == len(rows_by_hand()) + 1, "the heading has a path too"
