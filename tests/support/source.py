"""The source of both distributions as syntax trees, for tests that hold all of it to a rule."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "server" / "headgate", ROOT / "client" / "headgate_client")
GENERATED = ROOT / "client" / "headgate_client" / "wire"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Each module that people write: its path from the repository's root, and its syntax tree."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if not path.is_relative_to(GENERATED):
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(), str(path))
