"""The Lua scripts: files put together, each known to Redis by its SHA.

`time.lua` comes first and defines `now`; a test puts another text there to set the
clock, and switches on the checks, which are comments otherwise.
"""

import re
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Final

TIME: Final = "origin/time"
"""Lua file that every script begins with."""
CHECK: Final = "--@check "
"""Begins a line that is compiled in only with checks."""


_lines_by_sha: dict[str, list[str]] = {}
"""Lines of every script that was made, for messages: Redis 6.2 names a script and a line, and not the command there."""


def command_at(sha: str, line: int) -> str:
    """Name of the command that a script calls at a line; empty where it is not known."""
    lines = _lines_by_sha.get(sha, [])
    found = re.search(r"\('([A-Z]+)'", lines[line - 1]) if 0 < line <= len(lines) else None
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its text, and the SHA by which Redis knows it."""

    name: str
    text: bytes
    sha: bytes


class Scripts:
    """Scripts of all operations, each put together from its Lua files when it is first asked for."""

    def __init__(self, *, time: str | None = None, checks: bool = False) -> None:
        self._time = time if time is not None else _read(TIME)
        self._checks = checks
        self._scripts: dict[tuple[str, ...], Script] = {}

    def of(self, lua: tuple[str, ...]) -> Script:
        """Script that is made of these files (Operation.lua)."""
        script = self._scripts.get(lua)
        if script is None:
            script = self._scripts[lua] = self._assemble(lua)
        return script

    def _assemble(self, lua: tuple[str, ...]) -> Script:
        text = "\n".join([self._time, *map(_read, lua)])
        if self._checks:
            text = text.replace(CHECK, "")
        data = text.encode()
        # SHA-1 is how Redis names a script, not how anything is protected.
        sha = sha1(data, usedforsecurity=False).hexdigest()
        _lines_by_sha[sha] = text.splitlines()
        return Script(lua[-1].rpartition("/")[2], data, sha.encode())


def _read(file: str) -> str:
    package, _, name = file.rpartition("/")
    return (files("headgate") / package / "lua" / f"{name}.lua").read_text()
