"""What is locked is what the projects ask for, each with its hashes, and an audit that did not happen is none."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements import audit

ROOT = Path(__file__).parents[2]
OURS = "headgate-client"
PLATFORMS = ("linux", "darwin")


def project(path: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return found


def wanted(*, test: bool) -> list[Requirement]:
    server, client = project("pyproject.toml"), project("client/pyproject.toml")
    extras = server["optional-dependencies"]
    texts = [*server["dependencies"], *extras["postgresql"], *client["dependencies"]]
    texts += extras["test"] if test else []
    return [requirement for requirement in map(Requirement, texts) if requirement.name != OURS]


def locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """The pins of a lock file by distribution, each with the number of its hashes."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements" / name).read_text()):
        first = block.splitlines()[0]
        if first.startswith("#"):
            continue
        requirement = Requirement(first.removesuffix("\\").strip())
        found.setdefault(canonicalize_name(requirement.name), []).append((requirement, block.count("--hash=sha256:")))
    return found


@pytest.mark.parametrize(("name", "test"), [("serve.lock", False), ("test.lock", True)])
def test_every_dependency_is_pinned_to_a_version_that_it_accepts(name: str, test: bool) -> None:
    pins = locked(name)
    for requirement in wanted(test=test):
        for platform in PLATFORMS:
            environment = {"sys_platform": platform, "python_full_version": "3.11.9"}
            if requirement.marker is not None and not requirement.marker.evaluate(environment):
                continue
            chosen = [
                pin
                for pin, _ in pins.get(canonicalize_name(requirement.name), [])
                if pin.marker is None or pin.marker.evaluate(environment)
            ]
            assert len(chosen) == 1, f"{requirement} on {platform}: run `make lock`"
            (version,) = chosen[0].specifier
            assert version.operator == "=="
            assert requirement.specifier.contains(version.version, prereleases=True), f"{requirement}: run `make lock`"


@pytest.mark.parametrize("name", ["serve.lock", "test.lock"])
def test_every_pin_has_hashes_and_no_place_to_get_it_from(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index|--extra-index|--find-links)", text, re.MULTILINE)
    for pins in locked(name).values():
        for pin, hashes in pins:
            assert hashes > 0, pin
    assert OURS not in locked(name), "ours comes from the clone"


def test_what_is_served_has_the_versions_that_are_tested() -> None:
    tested = locked("test.lock")
    for name, pins in locked("serve.lock").items():
        assert {str(pin.specifier) for pin, _ in pins} <= {str(pin.specifier) for pin, _ in tested[name]}, name


MAKE = [re.sub(r"\s+", " ", rule) for rule in (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()]


def test_whatever_is_installed_from_a_lock_is_installed_by_its_hashes() -> None:
    """By `make`, which sets up what is tested, and by the image."""
    image = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").replace("&&", "\n").splitlines()
    installs = [line for line in [*MAKE, *image] if ".lock" in line and re.search(r"pip|PIP", line)]
    installs = [line for line in installs if not line.startswith(("COPY", "audit:")) and "audit.py" not in line]
    assert len(installs) == 6
    for line in installs:
        assert "--require-hashes" in line, line


def test_bill_and_audit_are_of_what_is_locked() -> None:
    (bill,) = [line for line in MAKE if "cyclonedx-py" in line]
    assert "requirements/serve.lock" in bill
    assert bill.endswith("--of JSON -o build/sbom.cdx.json")
    (audited,) = [line for line in MAKE if "audit.py" in line]
    assert audited.endswith("requirements/serve.lock requirements/test.lock")


def report(*dependencies: dict[str, Any]) -> audit.Audit:
    return audit.read_report(json.dumps({"dependencies": dependencies, "fixes": []}))


CLEAN = {"name": "a", "version": "1", "vulns": []}
FOUND = {"name": "b", "version": "2", "vulns": [{"id": "X-1"}, {"id": "X-2"}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (3)"}


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([report(CLEAN)], audit.EXIT_CLEAN),
        ([report(CLEAN, FOUND)], audit.EXIT_ADVISORIES),
        ([report(SKIPPED, FOUND)], audit.EXIT_ADVISORIES),
        # pip-audit ends with 0 here.
        ([report(CLEAN, SKIPPED)], audit.EXIT_NOT_AUDITED),
        ([report(SKIPPED), audit.Audit(failure="no network")], audit.EXIT_NOT_AUDITED),
        ([report(SKIPPED), report(CLEAN)], audit.EXIT_CLEAN),
        ([report()], audit.EXIT_NOT_AUDITED),
        ([audit.read_report("")], audit.EXIT_NOT_AUDITED),
    ],
)
def test_only_a_whole_audit_without_a_finding_is_a_success(results: list[audit.Audit], status: int) -> None:
    assert audit.judge(results) == status


def test_a_source_that_can_not_be_asked_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "pip-audit"
    broken.write_text("#!/bin/sh\necho 'ConnectionError: no route' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert audit.main(str(broken), ["some.lock"]) == audit.EXIT_NOT_AUDITED
    said = capsys.readouterr().out
    assert "pypi could not be asked: ConnectionError: no route" in said
    assert "NOT AUDITED" in said
    assert audit.main(str(tmp_path / "none"), ["some.lock"]) == audit.EXIT_NOT_AUDITED
    assert report(FOUND).advisories == ("b 2: X-1, X-2",)
