"""Prometheus' own checker. `make` puts it beside Python; a test that is run without make has it done."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PATH = Path(sys.executable).parent / "promtool"


def promtool() -> Path:
    """The program, installed where it is missing."""
    if not _PATH.exists():
        target = _PATH.relative_to(ROOT) if _PATH.is_relative_to(ROOT) else _PATH
        subprocess.run(["make", "--no-print-directory", "-C", ROOT, target], check=True, capture_output=True)
    return _PATH
