"""Every module and every public class says what it is."""

import ast
from collections.abc import Iterator

from tests.support.source import modules


def undescribed(path: str, tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield path
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield f"{path}: {node.name}"


def test_every_module_and_public_class_has_a_docstring() -> None:
    described = list(modules())
    assert len(described) > 80
    assert [name for path, tree in described for name in undescribed(path, tree)] == []


def test_what_lacks_one_is_seen() -> None:
    assert list(undescribed("a.py", ast.parse("class A: ...\nclass _B: ..."))) == ["a.py", "a.py: A"]
