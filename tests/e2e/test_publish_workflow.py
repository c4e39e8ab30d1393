"""The workflow for rules in Git: each of its commands runs as it is written, against a real plane with TLS.

A pull request is checked, diffed and replayed; what is merged is published in stages, and the job ends when it is in
force for everybody. `pip install headgate` alone is left out: what is under test is installed already.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate_client import Headgate as Client

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import Headgate, serve, start, write_rules
from tests.support.plane import TOKENS, free_address
from tests.support.source import ROOT
from tests.support.waiting import wait_until

WORKFLOW = yaml.safe_load((ROOT / "examples" / "plane" / "publish.yml").read_text())
RULES = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 100}}\n"
TIGHTER = RULES.replace("100", "5")
LOOSER = RULES.replace("100", "200")


def steps(job: str) -> Iterator[dict[str, Any]]:
    """Commands of a job, in order."""
    for step in WORKFLOW["jobs"][job]["steps"]:
        if "run" in step and not step["run"].startswith("pip install"):
            yield step


class Runner:
    """Runs steps as GitHub does: each a script for `bash -e`, in the checkout, with what its `env` names."""

    def __init__(self, directory: Path, known: dict[str, str]) -> None:
        self.checkout = directory / "work" / "repo"
        self._known = known
        shim = directory / "bin" / "headgate"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m headgate "$@"\n')
        shim.chmod(0o755)
        self._environ = {
            **os.environ,
            **known,
            "PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "ann@example", "GIT_COMMITTER_NAME": "ann",
            "GIT_COMMITTER_EMAIL": "ann@example",
        }  # fmt: skip
        self.checkout.mkdir(parents=True)
        self.bash("git init --quiet --initial-branch=main")
        self.commit(RULES)
        self.bash("git clone --quiet --bare . ../origin && git remote add origin ../origin && git fetch --quiet")

    def bash(self, script: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.checkout, env={**self._environ, **environ}, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    def commit(self, rules: str) -> None:
        write_rules(self.checkout / "rules", rules)
        done = self.bash("git add rules && git commit --quiet --message rules")
        assert done.returncode == 0, done.stderr

    def run(self, step: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
        environ = {name: self._value(str(text)) for name, text in step.get("env", {}).items()}
        return self.bash(step["run"], **environ)

    def _value(self, text: str) -> str:
        place = text.removeprefix("${{ ").removesuffix(" }}")
        assert place.startswith(("vars.", "secrets.")), text
        return self._known[place.partition(".")[2]]


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decisions on twenty requests of one caller, as a real node writes them."""
    directory = tmp_path_factory.mktemp("decisions")
    flags = ("--data-dir", str(directory / "data"), "--decision-log-values", "true", "--decision-log-allowances", "1")
    with serve(write_rules(directory / "rules", RULES), *flags, "--decision-log-stdout", "true") as node:
        with Client(node.grpc, "edge", timeout=60, keep_denials=0) as client:
            for _ in range(20):
                client.check(user="acme")
        assert node.stop() == 0
        assert node.process.stdout is not None
        lines = node.process.stdout.read()
    assert lines.count(b"acme") >= 1
    place = directory / "decisions.jsonl"
    place.write_bytes(lines)
    return place


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[Headgate, str]]:
    """A root with TLS, whose stages last a second."""
    ca = authority("plane")
    issued_by(ca, "localhost", "localhost").write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem)
    (tmp_path / "tokens").write_text(TOKENS)
    address = free_address()
    flags = (
        *("--data-dir", str(tmp_path / "root"), "--http", "127.0.0.1:0", "--admin-grpc", address),
        *("--admin-token-file", str(tmp_path / "tokens"), "--rollout-stage-s", "1"),
        *("--admin-tls-cert", str(tmp_path / "server.crt"), "--admin-tls-key", str(tmp_path / "server.key")),
    )
    with start("plane", *flags) as process:
        process.wait_for_event("plane_serving")
        yield process, f"localhost:{address.rpartition(':')[2]}"


@pytest.fixture
def runner(tmp_path: Path, plane: tuple[Headgate, str], decisions: Path) -> Runner:
    known = {
        "GITHUB_BASE_REF": "main",
        "GITHUB_SHA": "4711abc",
        "DECISIONS_URL": decisions.as_uri(),
        "PLANE_TOKEN": "ops-token",
        "PLANE_ADDR": plane[1],
        # The authorities that the system trusts, as a runner has them.
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(tmp_path / "ca.pem"),
    }
    return Runner(tmp_path, known)


def test_a_pull_request_is_checked_diffed_and_replayed(runner: Runner) -> None:
    runner.commit(TIGHTER)
    said = {step.get("name", ""): runner.run(step) for step in steps("check")}
    assert {name: done.returncode for name, done in said.items()} == {
        "Check": 0,
        "Say what changes for whom": 0,
        "Say whom it would have denied": 0,
    }, [done.stderr for done in said.values()]
    assert "edge" in said["Say what changes for whom"].stdout
    assert "acme" in said["Say whom it would have denied"].stdout
    runner.commit(RULES.replace("year", "fortnight"))
    check, *_ = steps("check")
    done = runner.run(check)
    assert (done.returncode, "fortnight" in done.stdout) == (1, True)


def test_what_is_merged_is_published_in_stages_unless_it_would_have_denied_too_many(
    runner: Runner, plane: tuple[Headgate, str]
) -> None:
    (publish,) = steps("publish")
    first = runner.run(publish)
    assert first.returncode == 0, first.stdout + first.stderr
    runner.commit(TIGHTER)
    refused = runner.run(publish)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "acme" in refused.stdout + refused.stderr
    runner.commit(RULES.replace("100", "50"))
    staged = runner.run(publish)
    assert staged.returncode == 0, staged.stdout + staged.stderr
    assert '"outcome":"done"' in staged.stdout.replace(" ", "")
    wait_until(lambda: plane[0].events[-1]["event"] == "rollout_done", "the end of the rollout")
    assert {event["why"] for event in plane[0].events if event["event"] == "rules_changed"} == {"4711abc"}
    shutil.rmtree(runner.checkout)
