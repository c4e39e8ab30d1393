"""Writes docs/classes.md from the source: `python -m tests.support.classes_page > docs/classes.md`.

Every public class of the server, by package, with its file and the first sentence of its docstring. A test compares
the page with the source, so a class can't be added without it.
"""

import ast
import re
import sys
from collections import defaultdict
from typing import Final, NamedTuple

from tests.support.source import modules

_SERVER: Final = "server/headgate/"
_SENTENCE_END: Final = re.compile(r"[.:](?=\s|$)")
_HEAD: Final = """\
# Classes

<!-- Written by `python -m tests.support.classes_page > docs/classes.md` from the source -->

Every public class of the server, with the first sentence of its docstring; paths are below `server/headgate/`.
The terms are in the [glossary](glossary.md), the order of the packages in [architecture.md](architecture.md).
"""


class ClassRow(NamedTuple):
    """One public class: name, file below the server's package, first sentence of its docstring."""

    name: str
    file: str
    sentence: str


def first_sentence(docstring: str) -> str:
    """First sentence of a docstring on one line, up to a full stop or a colon."""
    text = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    end = _SENTENCE_END.search(text)
    return (text[: end.start()] if end else text) + "."


def classes_of(file: str, tree: ast.Module) -> list[ClassRow]:
    """Public classes at the top of a module."""
    return [
        ClassRow(node.name, file, first_sentence(ast.get_docstring(node) or ""))
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def classes_page() -> str:
    """The page: one table per package, classes in the order of their names."""
    packages: dict[str, list[ClassRow]] = defaultdict(list)
    for path, tree in modules():
        if path.startswith(_SERVER):
            file = path.removeprefix(_SERVER)
            package = file.partition("/")[0] if "/" in file else "Top level"
            packages[package] += classes_of(file, tree)
    return _HEAD + "".join(_table(package, rows) for package, rows in sorted(packages.items()) if rows)


def _table(package: str, rows: list[ClassRow]) -> str:
    lines = [f"| `{row.name}` | `{row.file}` | {row.sentence.replace('|', '&#124;')} |" for row in sorted(rows)]
    return "\n".join([f"\n## {package}\n", "| class | file | is |", "|---|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(classes_page())
