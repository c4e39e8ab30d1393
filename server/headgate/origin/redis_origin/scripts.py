"""The Lua scripts: files put together, each known to Redis by its SHA.

`time.lua` comes first and defines `now`; a test puts another text there to set the
clock, and switches on the checks, which are comments otherwise.
"""

import re
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Final

CHECK: Final = "--@check "
"""Begins a line that is compiled in only with checks."""


_lines_by_sha: dict[str, list[str]] = {}
"""Of every script that was loaded, for messages: Redis 6.2 names a script and a line, and not the command there."""


def command_at(sha: str, line: int) -> str:
    """The command that a script calls at a line; empty where it is not known."""
    lines = _lines_by_sha.get(sha, [])
    found = re.search(r"\('([A-Z]+)'", lines[line - 1]) if 0 < line <= len(lines) else None
    return found[1] if found else ""


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
    give_back: Script
    quota_lease: Script
    quota_rows: Script
    quota_save: Script
    quota_post: Script
    quota_step: Script
    write_book: Script
    read_book: Script
    look: Script
    claim: Script


def load_scripts(*, time: str | None = None, checks: bool = False) -> Scripts:
    """The scripts as they run in production, unless told otherwise."""
    clock = time if time is not None else _read("time")

    def assemble(*names: str) -> Script:
        text = "\n".join([clock, *map(_read, names)])
        if checks:
            text = text.replace(CHECK, "")
        data = text.encode()
        # SHA-1 is how Redis names a script, not how anything is protected.
        sha = sha1(data, usedforsecurity=False).hexdigest()
        _lines_by_sha[sha] = text.splitlines()
        return Script(names[-1], data, sha.encode())

    return Scripts(
        call=assemble(
            "common", "state", "grants", "outbox", "refund", "window", "bucket", "quota", "quota_call", "call"
        ),
        heartbeat=assemble("heartbeat"),
        import_foreign=assemble("common", "outbox", "import"),
        changes=assemble("changes"),
        components=assemble("common", "components"),
        acknowledge=assemble("acknowledge"),
        begin_walk=assemble("walk"),
        mark_filled=assemble("mark"),
        give_back=assemble("give_back"),
        quota_lease=assemble("quota_lease"),
        quota_rows=assemble("quota_rows"),
        quota_save=assemble("quota_save"),
        quota_post=assemble("quota_post"),
        quota_step=assemble("common", "quota", "quota_step"),
        write_book=assemble("book_write"),
        read_book=assemble("book_read"),
        look=assemble("look"),
        claim=assemble("claim"),
    )


def _read(name: str) -> str:
    return (files("headgate.origin") / "lua" / f"{name}.lua").read_text()
