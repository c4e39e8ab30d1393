"""What all tests with a real Envoy share: the ways in which it can reach Headgate."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TRANSPORTS = ("native", "grpcio")


@pytest.fixture(scope="module")
def short_dir() -> Iterator[Path]:
    """For Unix sockets, whose paths have at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="hg-") as directory:
        yield Path(directory)
