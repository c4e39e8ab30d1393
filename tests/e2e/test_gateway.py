"""A real Envoy Gateway with real Envoys, whose limits Headgate takes over xDS and enforces for them.

In a namespace: Envoy Gateway binds fixed ports on all addresses, and its Envoys look for names and files of a pod.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.envoy_gateway import envoy_gateway, namespaced

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600


@pytest.mark.long
def test_limits_of_a_real_envoy_gateway(tmp_path: Path) -> None:
    """Each selector exactly, edits, deletions, restarts of the gateway under load, our restart while it is down."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("left out: a namespace needs root, unshare and ip")
    program = envoy_gateway()
    if program is None:
        pytest.skip(
            "left out: Envoy Gateway is not installed (python -m tests.support.envoy_gateway, where there is Go)"
        )
    scenario = [sys.executable, "-m", "tests.e2e.gateway_scenario", str(program), str(tmp_path)]
    result = subprocess.run(
        namespaced(tmp_path, scenario), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
