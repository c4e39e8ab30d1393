"""The Dockerfile: clean by a linter, and what it promises in its own words. `make image` builds and runs it."""

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.headgate import serve, write_rules
from tests.support.source import ROOT

TEXT = (ROOT / "Dockerfile").read_text()
LINES = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()
STEPS = [(line.split()[0], line.partition(" ")[2].strip()) for line in LINES if line.strip()]
LAST_STAGE = STEPS[max(i for i, (name, _) in enumerate(STEPS) if name == "FROM") :]


def only(name: str) -> str:
    (found,) = [rest for step, rest in LAST_STAGE if step == name]
    return found


def test_a_linter_has_nothing_to_say() -> None:
    ended = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-color", ROOT / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_what_runs_is_built_elsewhere_and_on_the_same_debian() -> None:
    bases = [rest for name, rest in STEPS if name == "FROM"]
    assert bases == ["${BUILD} AS build", "${PYTHON}"]
    assert STEPS[:2] == [
        ("ARG", "PYTHON=docker.io/library/python:3.13-slim-bookworm"),
        ("ARG", "BUILD=docker.io/library/python:3.13-bookworm"),
    ]
    commands = " ".join(rest for name, rest in LAST_STAGE if name == "RUN")
    assert not re.search(r"\b(pip install|apt|apk|curl|wget)\b", commands)


def test_everything_from_an_index_has_its_hash() -> None:
    """Each command that may fetch demands hashes; all others are kept from it."""
    commands = [
        part for _, rest in STEPS for part in rest.split("&&") if re.search(r"\bpip .*\b(install|wheel) ", part)
    ]
    assert len(commands) == 4
    for command in commands:
        assert "--no-index" in command or ("--require-hashes" in command and "--only-binary :all:" in command), command


def test_it_runs_as_a_user_by_number_and_the_server_is_process_one() -> None:
    assert only("USER") == "10001:10001"
    assert json.loads(only("ENTRYPOINT")) == ["headgate"]
    assert json.loads(only("CMD")) == ["serve"]
    assert only("STOPSIGNAL") == "SIGTERM"


def test_what_it_copies_is_all_that_a_build_is_given() -> None:
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert patterns[0] == "*"
    given = {line.removeprefix("!") for line in patterns if line.startswith("!")}
    copied = {word for name, rest in STEPS if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]}
    assert given == copied
    assert [name for name in given if not (ROOT / name).exists()] == []
    kept_out = [line.removeprefix("**/") for line in patterns if line.startswith("**/")]
    for name in ("__pycache__", "headgate.egg-info", ".mypy_cache", ".env"):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in kept_out), name


def health_command() -> list[str]:
    command: list[str] = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
    return command


@pytest.mark.slow
def test_the_health_check_tells_a_server_from_none(tmp_path: Path) -> None:
    program, *arguments = health_command()
    assert program == "python"
    with serve(write_rules(tmp_path / "rules")) as headgate:
        environ = {"HEADGATE_HTTP": headgate.http}
        healthy = subprocess.run([sys.executable, *arguments], env=environ, check=False, capture_output=True)
        assert healthy.returncode == 0, healthy.stderr
    gone = subprocess.run([sys.executable, *arguments], env=environ, check=False, capture_output=True)
    assert gone.returncode != 0
