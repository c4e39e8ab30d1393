"""The programs under examples/, run as somebody runs them: in the background, ended in order, with nothing left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.headgate import clean_environ

EXAMPLES = Path(__file__).parents[2] / "examples"
IN_THE_BACKGROUND = ("sh", "-c", 'trap "" INT && exec "$@"', "sh")
"""As a shell without job control starts a program with `&`: SIGINT is ignored by inheritance."""


@contextmanager
def example(script: str, *arguments: str, ports: str | None = "--free-ports") -> "Iterator[subprocess.Popen[str]]":
    """A script under examples/, on free ports; None: on those that it takes by itself."""
    process = subprocess.Popen(
        [*IN_THE_BACKGROUND, sys.executable, EXAMPLES / script, *([ports] if ports else []), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environ({"PYTHONUNBUFFERED": "1"}),
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        # Not SIGKILL: it ends its own children.
        process.terminate()
        process.wait(60)
        process.stdout.close()


def read_until_it_stays(process: "subprocess.Popen[str]") -> list[str]:
    """What it prints before it waits; its last line names the directory of its logs."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if " stay up until Ctrl-C" in line:
            return lines
    raise AssertionError(f"the example ended: {lines}")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
