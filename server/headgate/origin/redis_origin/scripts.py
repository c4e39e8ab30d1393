"""The Lua scripts: files put together, each known to Redis by its SHA.

`time.lua` comes first and defines `now`; a test puts another text there to set the
clock, and switches on the checks, which are comments otherwise.
"""

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Final

CHECK: Final = "--@check "
"""Begins a line that is compiled in only with checks."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its text, and the SHA by which Redis knows it."""

    name: str
    text: bytes
    sha: bytes


@dataclass(frozen=True, slots=True)
class Scripts:
    """All scripts that an origin runs."""

    call: Script
    heartbeat: Script
    import_foreign: Script
    changes: Script
    components: Script
    acknowledge: Script
    begin_walk: Script
    mark_filled: Script


def load_scripts(*, time: str | None = None, checks: bool = False) -> Scripts:
    """The scripts as they run in production, unless told otherwise."""
    clock = time if time is not None else _read("time")

    def assemble(*names: str) -> Script:
        text = "\n".join([clock, *map(_read, names)])
        if checks:
            text = text.replace(CHECK, "")
        data = text.encode()
        # SHA-1 is how Redis names a script, not how anything is protected.
        return Script(names[-1], data, sha1(data, usedforsecurity=False).hexdigest().encode())

    return Scripts(
        call=assemble("common", "state", "grants", "outbox", "window", "bucket", "call"),
        heartbeat=assemble("heartbeat"),
        import_foreign=assemble("common", "outbox", "import"),
        changes=assemble("changes"),
        components=assemble("common", "components"),
        acknowledge=assemble("acknowledge"),
        begin_walk=assemble("walk"),
        mark_filled=assemble("mark"),
    )


def _read(name: str) -> str:
    return (files("headgate.origin") / "lua" / f"{name}.lua").read_text()
