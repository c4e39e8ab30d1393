"""No module reaches into what another one keeps private."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.source import modules

PUBLIC_IN_SPITE_OF_ITS_NAME = {
    "_exit",  # os._exit: documented under this name
    "_asdict",  # of named tuples: underscored so that no field can have its name
    "_fields",  # as _asdict
    "_replace",  # as _asdict
}
WATCHES_FROM_INSIDE = "server/headgate/simulation/"
"""The simulation looks into the production objects it runs, to check what they never show."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in PUBLIC_IN_SPITE_OF_ITS_NAME


def defined(tree: ast.Module) -> set[str]:
    """Every name that the module itself makes: functions, classes, variables, attributes of `self`, slots."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _own(node.value):
            found.add(node.attr)
    return found


def _own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def reaches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Private attributes of anything but `self`, and private imports, that another module must have made."""
    own = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own and not _own(node.value):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if private(alias.name))


def test_private_attributes_are_used_only_where_they_are_made() -> None:
    found = [
        f"{path}:{line}: {text}"
        for path, tree in modules()
        if not path.startswith(WATCHES_FROM_INSIDE)
        for line, text in reaches(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("rules._files", ["rules._files"]),
        ("other._there = 1", ["other._there"]),
        ("from a import _b", ["_b"]),
        ("class A:\n def f(self, other):\n  self._x = 1\n  return other._x, self._inherited", []),
        ("os._exit(1); pair._replace(a=1); x.__class__", []),
    ],
)
def test_what_counts_as_reaching_in(code: str, expected: list[str]) -> None:
    assert [text for _, text in reaches(ast.parse(code))] == expected
