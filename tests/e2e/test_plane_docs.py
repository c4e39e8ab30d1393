"""What docs/plane.md says to type does what it says, in the order of the page, on other ports than there."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.headgate import HEADGATE, Headgate, run, start
from tests.support.plane import free_address, limits
from tests.support.postgresql import PostgresqlServer
from tests.support.source import ROOT
from tests.support.waiting import wait_until

PAGE = (ROOT / "docs" / "plane.md").read_text()
DEFAULT_ADDR = "127.0.0.1:8083"


def section(heading: str) -> str:
    """A section of the page, with those below it."""
    level = heading.partition(" ")[0]
    return re.split(rf"^#{{2,{len(level)}}} ", PAGE.split(f"\n{heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def typed(text: str) -> list[str]:
    """Lines of the blocks of a section, each with those that go on from it."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


class Operator:
    """Types commands in one directory, beside a copy of the examples."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.place = directory / "plane"
        self.processes: list[Headgate] = []
        self._stack = stack
        self.ports: dict[str, str] = {}
        """Addresses by those of the page."""
        os.symlink(ROOT / "examples", directory / "examples")

    def here(self, text: str) -> str:
        """The same with ports that are free."""
        return re.sub(r"127\.0\.0\.1:\d+", lambda found: self._free(found[0]), text)

    def _free(self, address: str) -> str:
        return self.ports.setdefault(address, free_address())

    def type(self, line: str, *more: str) -> str:
        """Type a line; what stays is started, and awaited. Returns what a command printed."""
        words = [*shlex.split(self.here(line)), *more]
        if words[0] != "headgate":
            self.place.mkdir(exist_ok=True)
            # The first line goes into the directory that it makes.
            script = line.removeprefix("mkdir -p plane && cd plane")
            subprocess.run(["sh", "-e", "-c", script], cwd=self.place, check=True)
            return ""
        if words[1] in ("plane", "serve"):
            self._start(words[1:])
            return ""
        asked = words[1:] if "--addr" in words else [*words[1:], "--addr", self._free(DEFAULT_ADDR)]
        token = () if "--token-file" in words else ("--token-file", "ops.token")
        done = subprocess.run(
            [*HEADGATE, *asked, *token], cwd=self.place, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def _start(self, words: list[str]) -> None:
        if words[0] == "serve" and "--grpc" not in words:
            words = [*words, "--grpc", free_address(), "--http", free_address()]
        program = ("sh", "-c", f'cd {self.place} && exec {sys.executable} -m headgate "$@"', "sh")
        process = self._stack.enter_context(start(*words, program=program))
        self.processes.append(process)
        if words[0] == "plane":
            process.http = process.wait_for_event("plane_serving")["http"]
        else:
            process.wait_ready()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with ExitStack() as stack:
        yield Operator(tmp_path, stack)


def test_ten_minutes_and_what_to_type_when_it_burns(operator: Operator) -> None:
    for line in typed(section("## Ten minutes to a running plane")):
        said = operator.type(line)
        if " put " in line:
            assert "in force on all 1 followers" in said
            assert limits(operator.processes[1])["edge:user=acme"] == 10
        if " status " in line:
            assert "in force on 1 of 1 followers" in said
        if " history " in line:
            assert [row.split()[0] for row in said.splitlines()] == ["3", "2", "1"]
    _root, node, _relay, behind = operator.processes
    assert "edge:user=acme" not in limits(node)
    assert limits(behind) == limits(node)
    for line in typed(section("### The red button")):
        operator.type(line)
    rows = re.findall(r"^\| [^|]+ \| (.*) \|$", section("### When it burns"), re.MULTILINE)
    commands = [command for row in rows for command in re.findall(r"`(headgate [^`]+|--\w+)`", row)]
    assert len(commands) == 7
    for command in commands:
        if command == "--resume":
            assert said.startswith("nothing to change")
            operator.type("headgate rules halt --resume")
            continue
        version = operator.type("headgate rules history").splitlines()[1].split()[2]
        said = operator.type(command.replace("VERSION", version))
    wait_until(lambda: limits(behind) == limits(node), "the last change behind the relay")


def test_a_relay_is_made_the_root_and_directories_of_roots_are_kept_apart(operator: Operator) -> None:
    lines = typed(section("## Ten minutes to a running plane"))
    for line in lines:
        operator.type(line)
    root, _node, relay, _behind = operator.processes
    root.process.kill()
    relay.stop()
    (line,) = (line for line in lines if "--upstream" in line)
    alone = re.sub(r"--upstream \S+", "", line)
    words = shlex.split(operator.here(alone))[1:]
    refused = run(
        *[str(operator.place / word) if word in ("relay", "tokens", "node.token") else word for word in words]
    )
    assert (refused.returncode, "--promote" in refused.stderr) == (1, True), refused.stderr
    operator.type(f"{alone} --promote")
    operator.type("headgate rules put --domain edge user=acme --limit 1/day --now --wait 0 --addr 127.0.0.1:8084")


def test_several_roots(operator: Operator) -> None:
    with PostgresqlServer() as server:
        url = server.url(server.database())
        operator.ports |= {address: address for address in re.findall(r"127\.0\.0\.1:\d+", url)}
        making, *_ = typed(section("## Ten minutes to a running plane"))
        operator.type(making)
        for line in typed(section("## Ten minutes to a running plane"))[1:3]:
            operator.type(line)
        for line in typed(section("## Several roots")):
            operator.type(line.replace("postgresql://headgate@db.example/plane", url))
        operator.type("headgate rules publish ../examples/rules --now")
        status = "headgate rules status --addr 127.0.0.1:8085"
        wait_until(lambda: "entry 1" in operator.type(status), "the other root to have it")
