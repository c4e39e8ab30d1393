"""A directory of rules files: which ones count, what is in them, and the rule set they make.

The files are read first, all of them, and are compiled only if nothing changed in the
meantime: a set is never a mixture of two states of the directory.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headgate.clock import SystemClock
from headgate.rules.defaults import PROGRAM, Defaults, defaults_of
from headgate.rules.laying import lay
from headgate.rules.model import Version
from headgate.rules.overlay_reader import read_overlay
from headgate.rules.pace import Pace
from headgate.rules.problems import Problem, RulesError
from headgate.rules.reader import MAX_FILE_BYTES, FileRules, read_file
from headgate.rules.ruleset import Domain, RuleSet
from headgate.rules.sharding import split_counters
from headgate.rules.source import OVERLAY, RulesSource, SourceFile, source_of
from headgate.rules.tree import LevelBuilder, NodeTable, unpack_place

EXTENSIONS = (".yaml", ".yml")

MAX_DEPTH = 8
"""Deepest nesting of directories that is read: far more than anyone needs, and the end of a loop of links."""

FileState = tuple[str, int, int, int, int, int, int]
Signature = tuple[FileState, ...]
"""State of the directory: name, device, inode, size, times and kind of each file."""


def signature(directory: Path) -> Signature | None:
    """The directory's state, or None while it can't be listed. Links are followed, so a swapped one shows."""
    try:
        names = _rule_names(directory)
    except OSError:
        return None
    return tuple(_file_state(os.path.join(directory, name), name) for name in names)


def _rule_names(directory: Path) -> list[str]:
    """Paths of all rules files, relative to the directory: `edge.yaml`, `team-a/edge.yaml`. Raises OSError."""
    return sorted(_names_below(str(directory), "", ()))


def _names_below(directory: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Links to directories are followed, except back to one that we are in (`above`): that has no end."""
    info = os.stat(directory)
    if (info.st_dev, info.st_ino) in above or len(above) >= MAX_DEPTH:
        return
    with os.scandir(directory) as entries:
        listed = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in listed:
        if entry.name.endswith(EXTENSIONS):
            yield prefix + entry.name
        elif entry.is_dir():
            yield from _names_below(entry.path, f"{prefix}{entry.name}/", (*above, (info.st_dev, info.st_ino)))


def _file_state(path: str, name: str) -> FileState:
    try:
        info = os.stat(path)
    except OSError as error:
        return (name, 0, 0, -1, error.errno or 0, 0, 0)
    return (name, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)


def read_directory(directory: Path, *, merge_domains: bool = False, layer: str = "") -> RulesSource:
    """All files, read; raises with every one that can't be. `layer` begins the names of files that are no rules."""
    what = "overlay" if layer else "rules"
    try:
        names = _rule_names(directory)
    except OSError as error:
        raise RulesError(
            [Problem(error.filename or str(directory), 1, f"can't list the {what} directory: {error.strerror}")],
            transient=True,
        ) from None
    if not names:
        raise RulesError([Problem(str(directory), 1, f"no {what} file ({' or '.join(EXTENSIONS)}) in this directory")])
    return _read_all(str(directory), names, merge_domains=merge_domains, layer=layer)


def _read_all(directory: str, names: Sequence[str], *, merge_domains: bool, layer: str) -> RulesSource:
    files: list[SourceFile] = []
    problems: list[Problem] = []
    for name in names:
        path = os.path.join(directory, name)
        try:
            files.append(SourceFile(path, _read(path), layer + name))
        except OSError as error:
            problems.append(Problem(path, 1, error.strerror or str(error)))
    if problems:
        # The other files' problems are named too: everything at once.
        raise RulesError(sorted(problems + check_files(files, merge_domains=merge_domains)), transient=True)
    return source_of(files, merge_domains=merge_domains)


def _read(path: str) -> bytes:
    # Non-blocking: a FIFO that someone named x.yaml must not hold the process.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        too_large = f"larger than {MAX_FILE_BYTES // 1024**2} MiB"
        if info.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, too_large)
        data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, too_large)
        return data


def check_files(files: Sequence[SourceFile], *, merge_domains: bool) -> list[Problem]:
    """Every problem of these files; none means that they compile."""
    try:
        compile_source(RulesSource(tuple(files), ""), Version(0, ""), Pace(SystemClock()), merge_domains=merge_domains)
    except RulesError as error:
        return list(error.problems)
    return []


def compile_source(source: RulesSource, version: Version, pace: Pace, *, merge_domains: bool) -> RuleSet:
    """The rule set of these files, with the overlay over it; raises with every problem of every file.

    Where the overlay makes no sense with a rule, the rule is as it would be without it: the set's `overlay` says so.
    """
    defaults = defaults_of(source.defaults)
    entries, problems = read_overlay(source.overlay)
    files = source.rules
    table = NodeTable()
    read: list[FileRules] = []
    for index, file in enumerate(files):
        pace.begin_file(file.path, len(file.data))
        read.append(read_file(file.path, file.data, index=index, table=table, pace=pace, defaults=defaults))
    problems += [problem for rules in read for problem in rules.problems]
    levels = _join(read, problems, merge_domains=merge_domains)
    shard_by = _join_field(read, problems, "shard_by")
    request_limits = _join_field(read, problems, "request_limits")
    file_domains = [rules.domain for rules in read]
    bad_files = {problem.file for problem in problems}
    bad = {rules.domain for rules in read if rules.path in bad_files}
    finished = {name: level.finish() for name, level in levels.items() if name not in bad}
    for name in finished.keys() & shard_by.keys():
        # A domain with other problems is looked at when these are mended: its levels are not whole.
        found = split_counters(table.nodes, finished[name], shard_by[name], pace.breathe)
        problems += sorted(
            Problem(read[unpack_place(place)[0]].path, unpack_place(place)[1], reason) for place, reason in found
        )
    if problems:
        raise RulesError(problems, domains=file_domains)
    paths = [file.path for file in files]
    laid = lay(entries, table, finished, defaults=defaults, where=partial(_where, paths), tick=pace.tick)
    domains = {
        name: Domain(name, level, shard_by.get(name, ""), request_limits.get(name))
        for name, level in laid.levels.items()
    }
    count = sum(rules.count for rules in read)
    nodes, origins = laid.table.nodes, laid.table.origins
    return RuleSet(domains, nodes, version, count, paths, file_domains, origins, laid.report)


def _where(paths: Sequence[str], place: int) -> str:
    index, line = unpack_place(place)
    return f"{paths[index]}:{line}"


def _join(read: Sequence[FileRules], problems: list[Problem], *, merge_domains: bool) -> dict[str, LevelBuilder]:
    levels: dict[str, LevelBuilder] = {}
    first_files: dict[str, FileRules] = {}
    for rules in read:
        if not rules.domain:
            continue  # reported already
        first = first_files.setdefault(rules.domain, rules)
        if first is rules:
            levels[rules.domain] = rules.rules
        elif merge_domains:
            problems += _collisions(levels[rules.domain], rules, read)
        else:
            reason = (
                f"domain `{rules.domain}` is defined in {first.path} already:"
                " one domain, one file, unless merge_domains is set"
            )
            problems.append(Problem(rules.path, rules.domain_line, reason))
    return levels


def _join_field(read: Sequence[FileRules], problems: list[Problem], name: str) -> dict[str, Any]:
    """Value of one top-level field by domain; files of one domain that differ in it are a problem."""
    said: dict[str, FileRules] = {}
    for rules in read:
        if getattr(rules, name):
            first = said.setdefault(rules.domain, rules)
            if getattr(first, name) != getattr(rules, name):
                reason = f"`{name}` is `{getattr(first, name)}` in {first.path} already: one domain, one `{name}`"
                problems.append(Problem(rules.path, getattr(rules, f"{name}_line"), reason))
    return {domain: getattr(rules, name) for domain, rules in said.items()}


def _collisions(level: LevelBuilder, rules: FileRules, read: Sequence[FileRules]) -> list[Problem]:
    problems = []
    for rule, place, first in level.merge(rules.rules):
        first_file, first_line = unpack_place(first)
        reason = f"duplicate descriptor `{rule}`, first at {read[first_file].path}:{first_line}"
        problems.append(Problem(rules.path, unpack_place(place)[1], reason))
    return sorted(problems)


def load_directory(
    directory: Path | str,
    *,
    merge_domains: bool = False,
    overlay: Path | None = None,
    defaults: Defaults = PROGRAM,
) -> RuleSet:
    """Read, check and compile a directory, or one file of any name; raises `RulesError` with every problem."""
    layers = (*(() if overlay is None else _read_path(overlay, layer=OVERLAY).files), *defaults.to_file())
    source = _read_path(Path(directory), merge_domains=merge_domains).under(layers)
    return compile_source(source, Version(1, source.digest), Pace(SystemClock()), merge_domains=merge_domains)


def check_overlay(overlay: Path) -> int:
    """Read and check an overlay by itself; return the number of its entries. Raises `RulesError` with every problem."""
    entries, problems = read_overlay(_read_path(overlay, layer=OVERLAY).files)
    if problems:
        raise RulesError(problems)
    return len(entries)


def _read_path(path: Path, *, merge_domains: bool = False, layer: str = "") -> RulesSource:
    if path.is_file():
        return _read_all(os.path.dirname(path), [path.name], merge_domains=merge_domains, layer=layer)
    return read_directory(path, merge_domains=merge_domains, layer=layer)
