"""The names that pages put in backticks, and the names that exist: for the test that every one of them does.

A name in backticks is checked if it can be nothing but code: it has an underscore, a dot between two words, capitals
within (`ShardLink`), brackets at its end, or it is the path of a source file. A single plain word (`limit`) may be a
value, a field or a command, and is not. It exists if the code has that word outside of comments and docstrings, in
Python, Lua, protos, YAML or a schema; `Class.member` if that class or one that it inherits from has the member; a
metric if docs/metrics.md has it (another test compares that page with the code), and a `HEADGATE_…` variable if there
is a setting of that name.
"""

import ast
import functools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.config.settings import SETTINGS

ROOT: Final = Path(__file__).resolve().parents[2]
SERVER: Final = ROOT / "server" / "headgate"
_FOLDERS: Final = ("server", "client", "protos", "tests", "benchmarks", "examples", "charts", "requirements")
_COMMENT_SIGN: Final = {
    ".lua": "--",
    ".proto": "//",
    ".yaml": "#",
    ".tpl": "#",
    ".toml": "#",
    ".json": None,
    ".js": "//",
}
_SKIPPED: Final = {ROOT / "tests" / "unit" / "test_docs.py"}
"""It lists the names of others, which would then exist."""

_BEFORE_A_STATEMENT: Final = {tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_BLOCK: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_PATH: Final = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.(?:py|lua|proto)")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_METRIC: Final = re.compile(r"^\| `(\w+)", re.MULTILINE)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_ONLY_CODE: Final = re.compile(r".*[A-Za-z]_|_.*|[A-Z][a-z]+[A-Z]")
_OTHER_FILE: Final = re.compile(
    r".*\.(?:com|org|net|io|local|md|ya?ml|json|toml|lock|txt|pem|sock|key|html|gz|conf|js)"
)
"""Dotted names that are hosts, or files that are no source."""


def code_names(text: str) -> Iterator[str]:
    """Names in backticks of a text that can be nothing but code, without the brackets of a call."""
    for span in _SPAN.findall(_BLOCK.sub("", text)):
        name = span.removesuffix("()")
        if _PATH.fullmatch(name):
            yield name
        elif _DOTTED.fullmatch(name):
            if not _OTHER_FILE.fullmatch(name):
                yield name
        elif _WORD.fullmatch(name) and (name != span or _ONLY_CODE.match(name)):
            yield name


def name_exists(name: str) -> bool:
    """True if the repository has this path, this member of a class, or these words."""
    if _PATH.fullmatch(name):
        return _path_exists(name)
    owner, _, member = name.rpartition(".")
    if owner and owner in _classes():
        return _has_member(owner, member)
    return all(word in known_words() for word in name.split("."))


def _path_exists(name: str) -> bool:
    if "/" not in name:
        return any(True for folder in _FOLDERS for _ in (ROOT / folder).rglob(name)) or (ROOT / name).exists()
    return any((base / name).exists() for base in (ROOT, SERVER, ROOT / "client", ROOT / "client" / "headgate_client"))


def _has_member(owner: str, member: str) -> bool:
    words, bases = _classes()[owner]
    return member in words or any(base in _classes() and _has_member(base, member) for base in bases - {owner})


@functools.cache
def known_words() -> frozenset[str]:
    """All words of the repository's code, without comments and docstrings; its metrics and its settings' variables."""
    words = {setting.env for setting in SETTINGS} | set(_METRIC.findall((ROOT / "docs" / "metrics.md").read_text()))
    for path in _files():
        if path.suffix == ".py":
            words |= _words_of_python(path)
        else:
            words |= set(_WORD.findall(_without_comments(path.read_text(), _COMMENT_SIGN[path.suffix])))
    return frozenset(words)


def _files() -> Iterator[Path]:
    for folder in _FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", *_COMMENT_SIGN} and path not in _SKIPPED:
                yield path


def _words_of_python(path: Path) -> set[str]:
    words: set[str] = set()
    statement_begins = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_docstring = token.type == tokenize.STRING and statement_begins
            if token.type != tokenize.COMMENT and not is_docstring:
                words |= set(_WORD.findall(token.string))
            if token.type not in {tokenize.NL, tokenize.COMMENT}:
                statement_begins = token.type in _BEFORE_A_STATEMENT
    return words


def _without_comments(text: str, sign: str | None) -> str:
    return text if sign is None else re.sub(rf"(^|\s){re.escape(sign)}.*", "", text)


@functools.cache
def _classes() -> dict[str, tuple[set[str], set[str]]]:
    """Each class of the code to the names in it, and to the names of its bases."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for path in _files():
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    words, bases = found.setdefault(node.name, (set(), set()))
                    words |= set(_members(node))
                    bases |= {word for base in node.bases for word in _WORD.findall(ast.unparse(base))}
    return found


def _members(owner: ast.ClassDef) -> Iterator[str]:
    """Methods, attributes and constants of a class; also those that it sets on `self`."""
    for node in ast.walk(owner):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
