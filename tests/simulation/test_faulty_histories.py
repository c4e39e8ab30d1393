"""A fixed set of bad days: two hundred histories from their seeds, and nothing that must hold is violated."""

import os
import subprocess
import sys

import pytest
from headgate.simulation.generate import generate
from headgate.simulation.runner import run

BLOCKS = 20
PER_BLOCK = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_is_violated(block: int) -> None:
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        history = generate(seed)
        assert len(history.asks) >= 1_000
        assert list(run(history).violations) == [], f"again: headgate simulate --seed {seed}"


def test_a_seed_is_one_history_byte_for_byte() -> None:
    def simulated(hash_seed: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "headgate", "simulate", "--seed", "8"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout

    first = simulated("1")
    assert b"violations: 0" in first
    assert simulated("2") == first
