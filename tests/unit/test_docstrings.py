"""Every module and public class has a docstring; a docstring begins with a verb or a noun; a class name stands once.

A docstring that begins with "What" or "Of" is a clause without a subject: the reader has to guess who does it. A class
name that two packages use makes a reader open the wrong file.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.support.source import docstrings, modules

SERVER = "server/headgate/"
CLAUSE = re.compile(r"(What|Whether|Of|By|As|Whose|How|When|Where|The same)\b")
NOT_YET_WORDED = (
    "exchange/quota",
    "handler.py",
    "keys",
    "limiter",
    "origin",
    "plan.py",
    "region",
    "reservations",
    "runtime",
    "simulation/network.py",
    "simulation/shard.py",
    "simulation/shard_watch.py",
    "transport",
    "wire",
)
"""Packages of the server, or paths in it, with docstrings that begin with a clause. To be emptied."""
NOT_YET_RENAMED = {
    "Deadlines",
    "Outbox",
    "Plan",
    "Region",
    "Share",
    "Standing",
}
"""Class names that stand twice in the server. To be emptied."""


def of_the_server() -> list[tuple[str, ast.Module]]:
    return [(path.removeprefix(SERVER), tree) for path, tree in modules() if path.startswith(SERVER)]


def undescribed(path: str, tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield path
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield f"{path}: {node.name}"


def clauses(path: str, tree: ast.Module) -> list[str]:
    """Docstrings of a module that begin with a clause, each with its place."""
    return [f"{path}:{line}: {text.splitlines()[0]}" for line, text in docstrings(tree) if CLAUSE.match(text)]


def class_names(trees: Iterable[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    """Name of every class to the files that define it."""
    files: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path)
    return files


def test_every_module_and_public_class_has_a_docstring() -> None:
    described = list(modules())
    assert len(described) > 80
    assert [name for path, tree in described for name in undescribed(path, tree)] == []


def test_what_lacks_one_is_seen() -> None:
    assert list(undescribed("a.py", ast.parse("class A: ...\nclass _B: ..."))) == ["a.py", "a.py: A"]


def test_every_docstring_begins_with_a_verb_or_a_noun() -> None:
    worded = [(path, tree) for path, tree in of_the_server() if not path.startswith(NOT_YET_WORDED)]
    assert [clause for path, tree in worded for clause in clauses(path, tree)] == []


def test_every_package_that_is_excused_from_it_needs_to_be() -> None:
    found = [clause for path, tree in of_the_server() for clause in clauses(path, tree)]
    assert [path for path in NOT_YET_WORDED if not any(clause.startswith(path) for clause in found)] == []


def test_a_docstring_that_begins_with_a_clause_is_seen() -> None:
    text = '''"""What it is."""
LIMIT = 1
"""How many."""
class A:
    """Whether it is one."""
    size: int
    """The same in bytes."""
    def f(self):
        """By its name."""
        self.x = 1
        """Of a key."""
def g():
    """Ask the shard. What it says is kept."""
"""Asks, and is no clause."""
'''
    assert [int(clause.split(":")[1]) for clause in clauses("a.py", ast.parse(text))] == [1, 3, 5, 7, 9, 11]


def test_no_class_name_stands_twice() -> None:
    twice = {name: files for name, files in class_names(of_the_server()).items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in NOT_YET_RENAMED} == {}
    assert set(twice) >= NOT_YET_RENAMED, "renamed: take it out of the list"


def test_a_class_name_that_stands_twice_is_seen() -> None:
    trees = [("a.py", ast.parse("class A: ...\ndef f():\n    class B: ...")), ("b.py", ast.parse("class B: ..."))]
    assert class_names(trees) == {"A": ["a.py"], "B": ["a.py", "b.py"]}
