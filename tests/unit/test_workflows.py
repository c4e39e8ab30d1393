"""What CI runs is what the Makefile has, on the servers that the docs promise; and every night more of it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.source import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]
    return loaded


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.stem)
def test_every_target_that_is_made_is_one_and_every_job_ends(workflow: Path) -> None:
    for name, job in jobs(workflow.name).items():
        assert set(re.findall(r"^\s*make ([a-z-]+)", commands(job), re.MULTILINE)) <= TARGETS, name
        assert job["timeout-minutes"] <= 360, name


def test_the_origin_is_tried_on_every_kind_of_server() -> None:
    job = jobs("ci.yml")["origin"]
    assert "make conformance REDIS=" in commands(job)
    images = {server["image"] for server in job["strategy"]["matrix"]["include"]}
    assert {re.sub(r"(\.\d+)?$", "", image) for image in images} >= {"redis:6", "redis:7", "redis:8", "valkey/valkey:8"}


def test_every_night_seeds_are_burnt_and_the_long_forms_run() -> None:
    nightly = jobs("nightly.yml")
    assert {name: re.findall(r"make ([a-z-]+)", commands(job)) for name, job in nightly.items()} == {
        "simulate": ["simulate"],
        "verify": ["verify"],
        "bench": ["bench", "bench-compiled"],
    }
    for job in nightly.values():
        assert job["steps"][-1]["uses"].startswith("actions/upload-artifact")
        assert job["steps"][-1]["if"] == "always()"
