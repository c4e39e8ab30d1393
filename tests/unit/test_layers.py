"""Nothing imports upward: every import of every module against the table of layers in docs/architecture.md.

A package may import packages of lower layers only, and nothing of its own layer but itself.
Imports for type checkers count like any other.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import headgate
import pytest

ROOT = Path(headgate.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \|", re.MULTILINE)


class Import(NamedTuple):
    """One package, or module directly below `headgate`, imports another."""

    where: str
    """File and line."""
    importer: str
    imported: str


def layers_in(page: str) -> dict[str, int]:
    """Package to layer; 1 is the lowest. A package that stands in the table twice is an error."""
    rows = ROW.findall(page)
    layers = {package: int(layer) for layer, package in rows}
    assert len(layers) == len(rows), "a package stands in the table twice"
    return layers


LAYERS = layers_in(PAGE.read_text())


def packages() -> set[str]:
    """All packages and modules directly below `headgate`. (`__init__` and `__main__` have no layer.)"""
    modules = {path.stem for path in ROOT.glob("*.py") if not path.stem.startswith("__")}
    return modules | {path.parent.name for path in ROOT.glob("*/__init__.py")}


def targets(node: ast.AST) -> Iterator[str]:
    """What of `headgate` a statement imports: names like `headgate.limiter.limit`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports name the whole package"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_in(text: str, importer: str, where: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(text)):
        for target in targets(node):
            top, _, rest = target.partition(".")
            imported = rest.partition(".")[0]
            # What is neither a package nor a module is a name of `headgate` itself, like its version.
            if top == "headgate" and imported in packages() and imported != importer:
                yield Import(f"{where}:{getattr(node, 'lineno', 0)}", importer, imported)


def all_imports() -> list[Import]:
    found: list[Import] = []
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        importer = relative.parts[0].removesuffix(".py")
        found += imports_in(path.read_text(), importer, str(relative))
    return found


IMPORTS = all_imports()


def upward(imports: list[Import], layers: dict[str, int]) -> list[str]:
    above_all = max(layers.values()) + 1
    return [
        f"{where}: {importer} imports {imported}"
        for where, importer, imported in imports
        if layers[imported] >= layers.get(importer, above_all)
    ]


def test_every_package_has_a_layer_and_every_layer_a_package_that_exists() -> None:
    assert set(LAYERS) == packages()


def test_nothing_imports_upward_or_sideways() -> None:
    assert len(IMPORTS) > 100
    assert upward(IMPORTS, LAYERS) == []


@pytest.mark.parametrize(
    ("importer", "allowed"),
    [
        ("errors", set()),
        ("clock", set()),
        ("config", {"errors", "address", "clock"}),
        # They know neither each other nor the region that stands on both.
        ("limiter", {"errors", "clock", "window"}),
        ("origin", {"errors", "clock", "telemetry", "address", "window"}),
        # The layer that decides for a region does no input or output but through an origin.
        ("region", {"errors", "clock", "limiter", "origin", "window"}),
    ],
)
def test_who_knows_whom_where_it_matters_most(importer: str, allowed: set[str]) -> None:
    """Beside the layers: these would stay apart even if the table were changed."""
    assert {found.imported for found in IMPORTS if found.importer == importer and not _exports(found)} <= allowed


def _exports(found: Import) -> bool:
    """Every part registers its own metrics, in its `instruments.py`: the one module of it that may know how."""
    return found.imported == "telemetry" and "/instruments.py:" in found.where


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        pytest.param("from headgate.low.part import x", [], id="down"),
        pytest.param("from headgate import __version__", [], id="the package's own names"),
        pytest.param("from headgate.middle.part import x", [], id="itself"),
        pytest.param("from headgate.high.part import x", ["here:1: middle imports high"], id="up"),
        pytest.param("from headgate import high", ["here:1: middle imports high"], id="up, as a module"),
        pytest.param("import headgate.high.part", ["here:1: middle imports high"], id="up, by its whole name"),
        pytest.param("from headgate.beside import x", ["here:1: middle imports beside"], id="sideways"),
        pytest.param(
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headgate.high import x",
            ["here:3: middle imports high"],
            id="up, for type checkers",
        ),
        pytest.param("def f():\n    import headgate.high", ["here:2: middle imports high"], id="up, within a function"),
    ],
)
def test_the_test_finds_an_import_that_points_up(
    monkeypatch: pytest.MonkeyPatch, text: str, complaints: list[str]
) -> None:
    layers = layers_in("| 1 | `low` | a |\n| 2 | `middle` | b |\n| 2 | `beside` | c |\n| 3 | `high` | d |\n")
    monkeypatch.setitem(globals(), "packages", lambda: set(layers))
    assert upward(list(imports_in(text, "middle", "here")), layers) == complaints
