"""Measure the source of the server: how much of it there is, how large its pieces are, and what a reader stumbles over.

    python benchmarks/house.py [ROOT] [--list] [--hops]

ROOT is a clone (by default this one), so that two of them can be compared. Generated code is left out. `--list` names
each place behind a count; `--hops` also runs benchmarks/hops.py, with the Python of ROOT's own environment.
"""

import argparse
import ast
import io
import re
import statistics
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
PACKAGE: Final = "headgate"
MOST_FILE_LINES: Final = 400
MOST_FUNCTION_LINES: Final = 50
MOST_CLASS_LINES: Final = 300
TABLES: Final = frozenset({"config/settings.py"})
"""Files that are one table: a row more is no code more."""
CLAUSE: Final = re.compile(r"(What|Whatever|Whether|Of|By|As|Who|Whose|Whoever|How|When|Where|Why|Which|If|So|That)\b")
"""How a docstring begins that is a clause without a subject."""
LAYOUT: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Module(NamedTuple):
    """One file of the server, read."""

    path: str
    """Below the package."""
    name: str
    text: str
    tree: ast.Module


class Place(NamedTuple):
    """Something found, with its size in lines where it has one."""

    where: str
    lines: int = 0

    def __str__(self) -> str:
        return f"{self.where}: {self.lines}" if self.lines else self.where


def read(root: Path) -> list[Module]:
    """All hand-written modules of the server in a clone."""
    package = root / "server" / PACKAGE
    modules = []
    for path in sorted(package.rglob("*.py")):
        if path.stem.endswith(("_pb2", "_pb2_grpc")):
            continue
        relative = path.relative_to(package)
        parts = relative.parent.parts if path.stem == "__init__" else relative.with_suffix("").parts
        text = path.read_text()
        modules.append(Module(str(relative), ".".join((PACKAGE, *parts)), text, ast.parse(text)))
    if not modules:
        raise SystemExit(f"there is no server in {root}")
    return modules


# Sizes


def code_lines(module: Module) -> int:
    """Count the lines that are neither blank, nor a comment, nor the docstring of a module, class or function."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def long_files(modules: Sequence[Module]) -> list[Place]:
    sizes = [Place(module.path, module.text.count("\n")) for module in modules]
    return _largest_first(
        [Place(f"{where} (a table)" if where in TABLES else where, lines) for where, lines in sizes], MOST_FILE_LINES
    )


def definitions(module: Module) -> Iterator[tuple[Place, Definition]]:
    """Find each function and class of a module, with its size: from its own line to its last, without decorators."""
    for node in ast.walk(module.tree):
        if isinstance(node, Definition):
            place = Place(
                f"{module.path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1
            )
            yield place, node


def long_functions(modules: Sequence[Module]) -> list[Place]:
    return _largest_first(_functions(modules), MOST_FUNCTION_LINES)


def long_classes(modules: Sequence[Module]) -> list[Place]:
    classes = [place for module in modules for place, node in definitions(module) if isinstance(node, ast.ClassDef)]
    return _largest_first(classes, MOST_CLASS_LINES)


def _functions(modules: Sequence[Module]) -> list[Place]:
    return [place for module in modules for place, node in definitions(module) if not isinstance(node, ast.ClassDef)]


def _largest_first(places: Sequence[Place], most: int) -> list[Place]:
    return sorted([place for place in places if place.lines > most], key=lambda place: -place.lines)


# Imports


def imports(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Find which modules each one imports: within functions, and for type checkers alone, too."""
    names = {module.name for module in modules}
    edges: dict[str, set[str]] = {}
    for module in modules:
        targets = {_module_of(target, names) for node in ast.walk(module.tree) for target in _targets(node)}
        edges[module.name] = {target for target in targets if target is not None} - {module.name}
    return edges


def _targets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_of(target: str, names: set[str]) -> str | None:
    """Name the module that a dotted name is, or is in."""
    while target and target not in names:
        target = target.rpartition(".")[0]
    return target or None


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Find the groups of modules that all reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for target in sorted(edges[name]):
            if target not in index:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], index[target])
        if lowest[name] == index[name]:
            start = stack.index(name)
            group, stack[start:] = sorted(stack[start:]), []
            if len(group) > 1:
                found.append(group)

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


# Words


def docstrings(module: Module) -> Iterator[tuple[int, str]]:
    """Find every string that stands alone, with its line: of modules, classes, functions and attributes."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def clauses(modules: Sequence[Module]) -> list[Place]:
    return [
        Place(f"{module.path}:{line} {text.splitlines()[0]}")
        for module in modules
        for line, text in docstrings(module)
        if CLAUSE.match(text)
    ]


def names_used_twice(modules: Sequence[Module]) -> list[Place]:
    """Find class names that stand in several modules; private ones are nobody else's business."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{module.path}:{node.lineno}")
    return [Place(f"{name} ({', '.join(where)})") for name, where in sorted(homes.items()) if len(where) > 1]


# Report


def report(root: Path, *, listed: bool) -> None:
    modules = read(root)
    functions = _functions(modules)
    sizes = sorted(place.lines for place in functions)
    largest = max(functions, key=lambda place: place.lines)
    lines = sum(module.text.count("\n") for module in modules)
    print(f"modules: {len(modules)}")
    print(f"lines of code: {sum(map(code_lines, modules)):,} of {lines:,}")
    print(f"functions: {len(sizes)}, median {statistics.median_low(sizes)}, p90 {sizes[len(sizes) * 9 // 10]} lines")
    print(f"largest function: {largest}")
    files = long_files(modules)
    tables = sum(place.where.endswith("(a table)") for place in files)
    _section(
        f"files over {MOST_FILE_LINES} lines", files, listed=True, note=f", {tables} of them tables" if tables else ""
    )
    _section(f"functions over {MOST_FUNCTION_LINES} lines", long_functions(modules), listed=True)
    _section(f"classes over {MOST_CLASS_LINES} lines", long_classes(modules), listed=True)
    groups = [
        Place(", ".join(name.removeprefix(f"{PACKAGE}.") for name in group)) for group in cycles(imports(modules))
    ]
    _section("module cycles", groups, listed=True)
    _section("class names used twice", names_used_twice(modules), listed=listed)
    _section("docstrings that are clauses", clauses(modules), listed=listed)


def _section(title: str, places: Sequence[Place], *, listed: bool, note: str = "") -> None:
    print(f"{title}: {len(places)}{note}")
    if listed:
        for place in places:
            print(f"    {place}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=HERE.parent, metavar="ROOT")
    parser.add_argument("--list", action="store_true", help="name each docstring and class name too")
    parser.add_argument("--hops", action="store_true", help="count the hops of a request too")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    report(root, listed=arguments.list)
    if arguments.hops:
        subprocess.run([root / ".venv" / "bin" / "python", HERE / "hops.py"], check=True)


if __name__ == "__main__":
    main()
