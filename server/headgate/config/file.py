"""The config file: YAML with one mapping, read with the line of every key.

The text is only composed into nodes, never constructed into objects, so a scalar is
what the operator wrote and an alias bomb stays a handful of references. Every
problem is collected as `file:line: reason`; nothing is raised.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

MAX_FILE_BYTES = 1024 * 1024
"""A config file has a few dozen keys; anything larger is the wrong file, and would only cost memory."""

_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One key of the file: its scalars as written, and where it stands."""

    key: str
    line: int
    texts: list[str]
    is_list: bool


def read_config_file(path: Path, problems: list[str]) -> list[FileEntry]:
    """The entries of the file, in its order; what is wrong with it goes into `problems`."""
    text = _read(path, problems)
    node = None if text is None else _compose(path, text, problems)
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        problems.append(f"{path}:{_line(node)}: expected `key: value` lines, got {_shape(node)}")
        return []
    return list(_entries(path, node, problems))


def _read(path: Path, problems: list[str]) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        problems.append(f"{path}: can't be read: {error.strerror}")
        return None
    if len(data) > MAX_FILE_BYTES:
        problems.append(f"{path}: is larger than {MAX_FILE_BYTES} bytes: not a config file")
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.append(f"{path}:{line}: is not UTF-8")
        return None


def _compose(path: Path, text: str, problems: list[str]) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = error.problem or error.context
        hint = " (a tab: YAML is indented with spaces only)" if "'\\t'" in str(problem) else ""
        problems.append(f"{path}:{line}: is not YAML: {problem}{hint}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(f"{path}:{line}: is not YAML: {error.reason}")
    except RecursionError:
        problems.append(f"{path}:1: is nested too deeply")
    return None


def _entries(path: Path, mapping: yaml.MappingNode, problems: list[str]) -> Iterator[FileEntry]:
    first_seen: dict[str, int] = {}
    for key_node, value_node in mapping.value:
        line = _line(key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            problems.append(f"{path}:{line}: expected a key, got {_shape(key_node)}")
            continue
        key = key_node.value
        if key in first_seen:
            problems.append(f"{path}:{line}: {key}: is given twice, first on line {first_seen[key]}")
            continue
        first_seen[key] = line
        entry = _entry(path, key, line, value_node, problems)
        if entry is not None:
            yield entry


def _entry(path: Path, key: str, line: int, node: yaml.Node, problems: list[str]) -> FileEntry | None:
    is_list = isinstance(node, yaml.SequenceNode)
    texts = []
    for item in node.value if is_list else [node]:
        if not isinstance(item, yaml.ScalarNode):
            problems.append(f"{path}:{_line(item)}: {key}: expected a plain value, got {_shape(item)}")
            return None
        if item.tag == _NULL:
            problems.append(f"{path}:{_line(item)}: {key}: has no value")
            return None
        texts.append(item.value)
    return FileEntry(key, line, texts, is_list)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
