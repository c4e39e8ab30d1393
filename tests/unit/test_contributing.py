"""CONTRIBUTING.md names files and things in them as they are."""

import re

from tests.support.source import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TOP = ("server/", "client/", "tests/", "docs/", "examples/", "benchmarks/", "protos/", "charts/")


def paths() -> list[str]:
    return [name for name in re.findall(r"`([^`\s]+)`", PAGE) if name.startswith(TOP)]


def test_every_file_and_directory_is_there() -> None:
    found = paths()
    assert len(found) > 40
    assert [path for path in found if not (ROOT / path).exists()] == []


NAMES = re.compile(r"`(_?[a-z]+(?:_[a-z]+)+|_[a-z]+|_?[A-Z][A-Z_]+|(?:[A-Z][a-z]+)+)`")
EXAMPLES = {"_total", "_seconds", "_bytes", "breaker_changed", "window_ms"}
"""Of how things are named; they are nowhere in particular."""


def test_every_name_is_somewhere_in_the_files_of_its_recipe() -> None:
    """`CamelCase`, `UPPER_CASE`, `lower_case` and `_private` names: each is a word of a file that its recipe names."""
    missing = []
    for recipe in re.split(r"^##+ ", PAGE, flags=re.MULTILINE):
        files = [ROOT / path for path in re.findall(r"`([^`\s]+\.py)`", recipe) if path.startswith(TOP)]
        words = {word for file in files for word in re.findall(r"\w+", file.read_text())}
        missing += [name for name in NAMES.findall(recipe) if name not in words | EXAMPLES]
    assert missing == []
