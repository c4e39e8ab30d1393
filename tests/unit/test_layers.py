"""Nothing imports upward: every import of every module against the table of layers in docs/architecture.md.

A package may import packages of lower layers only, and nothing of its own layer but itself. And no module
waits for itself through others. Imports for type checkers and within functions count like any other.
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
        ("config", {"errors", "address", "clock", "percentages", "spelling"}),
        # They know neither each other nor the region that stands on both.
        ("limiter", {"errors", "clock", "window"}),
        ("origin", {"errors", "clock", "telemetry", "address", "window"}),
        # The layer that decides for a region does no input or output but through an origin.
        ("region", {"errors", "clock", "heirs", "limiter", "lines", "origin", "window"}),
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


# Modules


def module_of(target: str, names: set[str]) -> str | None:
    """The module that an imported name is, or is in; nothing where it is none of ours."""
    while target and target not in names:
        target = target.rpartition(".")[0]
    return target or None


def module_imports(sources: dict[str, str]) -> dict[str, set[str]]:
    """Each module to the modules that it imports, anywhere in its text."""
    names = set(sources)
    return {
        name: {
            found
            for node in ast.walk(ast.parse(text))
            for target in targets(node)
            if (found := module_of(target, names))
        }
        - {name}
        for name, text in sources.items()
    }


def cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that reach each other, in groups: Tarjan's strongly connected components of more than one."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        path.append(module)
        for imported in sorted(imports[module]):
            if imported not in index:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in path:
                lowest[module] = min(lowest[module], index[imported])
        if lowest[module] == index[module]:
            component = path[path.index(module) :]
            del path[path.index(module) :]
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return found


def our_modules() -> dict[str, str]:
    """Text of every module by its full name. A package's `__init__` has the package's name."""
    texts = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        texts[name.removesuffix(".__init__")] = path.read_text()
    return texts


def test_no_module_waits_for_itself() -> None:
    imports = module_imports(our_modules())
    assert len(imports) > 300
    assert cycles(imports) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param({"p.a": "import p.b", "p.b": "import p.c", "p.c": ""}, [], id="a line"),
        pytest.param(
            {"p.a": "import p.b", "p.b": "from p.c import x", "p.c": "from p import a"},
            [["p.a", "p.b", "p.c"]],
            id="a ring",
        ),
        pytest.param(
            {"p.a": "if TYPE_CHECKING:\n    from p.b import B", "p.b": "from p.a import A"},
            [["p.a", "p.b"]],
            id="for type checkers",
        ),
        pytest.param(
            {"p.a": "def f():\n    import p.b", "p.b": "import p.a"}, [["p.a", "p.b"]], id="within a function"
        ),
        pytest.param(
            {"p.a": "import p.b", "p.b": "import p.a", "p.c": "import p.a, p.d", "p.d": "import p.c"},
            [["p.a", "p.b"], ["p.c", "p.d"]],
            id="two of them",
        ),
    ],
)
def test_modules_that_wait_for_themselves_are_found(sources: dict[str, str], expected: list[list[str]]) -> None:
    assert cycles(module_imports(sources)) == expected
