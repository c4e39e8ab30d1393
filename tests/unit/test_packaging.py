"""What both distributions say of themselves: one version each, tied to the other's, and the licence in both."""

import filecmp
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

import headgate
import headgate_client
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from requirements import version as release_version
from tests.support.source import ROOT

FOLDERS = {"headgate": ROOT, "headgate-client": ROOT / "client"}


def project(folder: Path) -> dict[str, Any]:
    return dict(tomllib.loads((folder / "pyproject.toml").read_text())["project"])


def test_what_is_installed_is_the_version_that_the_modules_name() -> None:
    """Both are released together, and the server asks for a client of its own series."""
    assert version("headgate") == headgate.__version__
    assert version("headgate-client") == headgate_client.__version__ == headgate.__version__
    (wanted,) = [Requirement(text) for text in project(ROOT)["dependencies"] if text.startswith("headgate-client")]
    ours = Version(headgate.__version__)
    assert headgate_client.__version__ in wanted.specifier
    assert f"{ours.major}.{ours.minor + 1}.0" not in wanted.specifier


def test_the_version_is_said_alike_wherever_it_must_be_said() -> None:
    written = list(release_version.outputs())
    assert len(written) == 6
    for path, content in written:
        assert path.read_text() == content, f"{path.name}: run `make docs`"


@pytest.mark.parametrize("name", FOLDERS)
def test_the_version_is_written_in_the_module_alone(name: str) -> None:
    described = project(FOLDERS[name])
    assert described["dynamic"] == ["version"]
    assert "version" not in described


@pytest.mark.parametrize("name", FOLDERS)
def test_a_distribution_says_which_pythons_it_is_for_and_carries_its_licence(name: str) -> None:
    described = metadata(name)
    pythons = [entry for entry in described.get_all("Classifier", []) if "Python :: 3." in entry]
    assert [entry.rpartition(" ")[2] for entry in pythons] == ["3.11", "3.12", "3.13", "3.14"]
    assert described["Requires-Python"] == ">=3.11"
    assert described.get_all("License-File") == ["LICENSE"]
    assert filecmp.cmp(ROOT / "LICENSE", FOLDERS[name] / "LICENSE", shallow=False)
