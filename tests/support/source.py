"""The source of both distributions as syntax trees, for tests that hold all of it to a rule."""

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "server" / "headgate", ROOT / "client" / "headgate_client")
GENERATED = "_pb2.py", "_pb2_grpc.py"
"""How the names of modules end that protos/generate.py makes."""


@functools.cache
def modules() -> Sequence[tuple[str, ast.Module]]:
    """Each module that people write: its path from the repository's root, and its syntax tree."""
    paths = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    written = [path for path in paths if not path.name.endswith(GENERATED)]
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(), str(path))) for path in written]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring: of modules, classes, functions, attributes and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
