"""The version stands in server/headgate/__init__.py; this writes it wherever else it must be said. `make docs` runs it.

    python requirements/version.py

Two distributions and a chart are released as one, and each is read by a tool that knows no other file. A test fails
until all of them say the same.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "server" / "headgate" / "__init__.py"
NUMBER = r"(\d+)\.(\d+)\.(\d+)"


def version() -> tuple[int, int, int]:
    found = re.search(f'^__version__ = "{NUMBER}"$', SOURCE.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{SOURCE}: no __version__ of three numbers")
    return int(found[1]), int(found[2]), int(found[3])


def outputs() -> Iterator[tuple[Path, str]]:
    """Every file that says it, and what belongs into it."""
    major, minor, patch = version()
    said = f"{major}.{minor}.{patch}"
    # The server takes any client of its own series, and the client's `local` any such server: what they say to each
    # other changes with the second number.
    series = f">={major}.{minor}.0,<{major}.{minor + 1}"
    for name, pattern, text in (
        ("client/headgate_client/__init__.py", f'^__version__ = "{NUMBER}"$', f'__version__ = "{said}"'),
        ("charts/headgate/Chart.yaml", f"^version: {NUMBER}$", f"version: {said}"),
        ("charts/headgate/Chart.yaml", f'^appVersion: "{NUMBER}"$', f'appVersion: "{said}"'),
        ("pyproject.toml", r"headgate-client>=[\d.]+,<[\d.]+", f"headgate-client{series}"),
        ("client/pyproject.toml", r"headgate>=[\d.]+,<[\d.]+", f"headgate{series}"),
        (".pre-commit-hooks.yaml", f"rev: v{NUMBER}$", f"rev: v{said}"),
    ):
        path = ROOT / name
        before = path.read_text()
        after, count = re.subn(pattern, text, before, flags=re.MULTILINE)
        if count != 1:
            raise SystemExit(f"{path}: says {count} versions like {pattern}, and should say one")
        yield path, after


if __name__ == "__main__":
    for path, content in outputs():
        path.write_text(content)
