"""A fixed set of bad days, from their seeds: nothing that must hold is violated, and a seed is one history."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from headgate.simulation.generate import DAYS, IN_TESTS, LEAST_REQUESTS, OTHER_DAYS, generate
from headgate.simulation.history import FaultKind
from headgate.simulation.runner import run

from tests.simulation.fixed_set import LONG, SEEDS


def fixed_set() -> list[ParameterSet]:
    return [
        pytest.param(seed, id=generate(seed).name, marks=[pytest.mark.long] if seed in LONG else []) for seed in SEEDS
    ]


@pytest.mark.parametrize("seed", fixed_set())
def test_nothing_is_violated(seed: int) -> None:
    history = generate(seed)
    assert len(history.asks) >= LEAST_REQUESTS >= 1_000
    assert len(history.kinds) >= 3
    violations = [violation.describe() for violation in run(history).violations]
    assert violations == [], f"again: headgate simulate --seed {seed}"


def test_the_short_form_has_every_kind_of_day_and_every_kind_of_fault() -> None:
    histories = [generate(seed) for seed in SEEDS if seed not in LONG]
    assert len(set(SEEDS)) >= 200
    days = {day.name for day in DAYS} | {day.name for _, day in OTHER_DAYS.values()}
    assert {history.name.split("-")[0] for history in histories} == days
    assert {kind for history in histories for kind in history.kinds} == {
        kind.value for kind in FaultKind if kind not in IN_TESTS
    }


@pytest.mark.parametrize("seed", [8, 98], ids=["storm", "evictions"])
def test_a_seed_is_one_history_byte_for_byte(seed: int, tmp_path: Path) -> None:
    """In another process, and on another build: the second one is pure Python, whichever is tested."""

    def simulated(hash_seed: str, **environ: str) -> bytes:
        trace = tmp_path / hash_seed
        output = subprocess.run(
            [sys.executable, "-m", "headgate", "simulate", "--seed", str(seed), "--trace", str(trace)],
            env={**os.environ, **environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        assert b"violations: 0" in output
        return output + trace.read_bytes()

    assert simulated("1") == simulated("2", PYTHONPATH="")
