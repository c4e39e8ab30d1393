"""The version of Headgate before the last change of how nodes count together, to be run beside this one.

Its source comes out of this clone's history, so no network is needed; where that does not reach back so far (a shallow
clone, an unpacked sdist) whoever asks for it is skipped.
"""

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

COMMIT: Final = "823424f417cafc265d4b719b1ab3b39628f30771"
"""The last one with grants: its nodes charge up to the limit beside whatever others hold (convergence.md, 4.11)."""
PACKAGES: Final = ("server", "client")
ROOT: Final = Path(__file__).parents[2]


def older_version(directory: Path) -> dict[str, str]:
    """Unpack it there; return the environment in which this Python imports it."""
    asked = ["git", "-C", str(ROOT), "archive", COMMIT, *PACKAGES]
    try:
        archive = subprocess.run(asked, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"commit {COMMIT[:7]}, the version before, is not in this clone: `git fetch --unshallow` gets it")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return {"PYTHONPATH": os.pathsep.join(str(directory / package) for package in PACKAGES)}
