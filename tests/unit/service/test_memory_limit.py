"""How many counters fit: by the limits that Linux writes down, in containers and out of them."""

import json
from pathlib import Path

import pytest
from headgate.config import Settings
from headgate.runtime import from_settings
from headgate.runtime.memory_limit import (
    COUNTER_BYTES,
    DEFAULT_COUNTERS,
    MIB,
    PROCESS_BYTES,
    counters_within,
    memory_limit_bytes,
)

from tests.support.source import ROOT

V1 = "sys/fs/cgroup/memory/"
V2 = "sys/fs/cgroup/"
NO_LIMIT = "9223372036854771712"
"""Version 1 has no word for it."""


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        pytest.param("0::/", {V2 + "memory.max": "536870912"}, 512 * MIB, id="a container, version 2"),
        pytest.param("0::/", {V2 + "memory.max": "max"}, None, id="no limit, version 2"),
        pytest.param("0::/", {}, None, id="a machine, version 2: its root has no file"),
        pytest.param(
            "0::/a.slice/b.service",
            {V2 + "a.slice/memory.max": "300", V2 + "a.slice/b.service/memory.max": "max"},
            300,
            id="the limit of a group above",
        ),
        pytest.param(
            "0::/a/b", {V2 + "a/memory.max": "300", V2 + "a/b/memory.max": "200"}, 200, id="the lowest of several"
        ),
        pytest.param(
            "2:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/",
            {V1 + "memory.limit_in_bytes": NO_LIMIT, V1 + "docker/1/memory.limit_in_bytes": "536870912"},
            512 * MIB,
            id="version 1",
        ),
        pytest.param(
            "4:memory:/kubepods/pod1/c1",
            {V1 + "memory.limit_in_bytes": "536870912"},
            512 * MIB,
            id="a container, version 1: it sees its own group alone",
        ),
        pytest.param("4:memory:/", {V1 + "memory.limit_in_bytes": NO_LIMIT}, int(NO_LIMIT), id="no limit, version 1"),
    ],
)
def test_the_limit_is_the_lowest_of_the_groups_that_the_process_is_in(
    groups: str, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    assert memory_limit_bytes(machine(tmp_path, groups, files)) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("limit_mib", "processes", "counters"),
    [
        pytest.param(None, 1, 1_000_000, id="no limit"),
        pytest.param(None, 8, 1_000_000, id="no limit, several processes"),
        pytest.param(512, 1, 348_966, id="a sidecar"),
        pytest.param(1024, 1, 778_462, id="a server of the chart"),
        pytest.param(1024, 4, 134_217, id="four workers of one"),
        pytest.param(64 * 1024, 1, 1_000_000, id="no more than without a limit"),
        pytest.param(64, 1, 1_000, id="too little for the process alone: the least that is accepted"),
    ],
)
def test_counters_get_three_fifths_of_what_the_process_leaves(
    limit_mib: int | None, processes: int, counters: int
) -> None:
    limit = None if limit_mib is None else limit_mib * MIB
    assert counters_within(limit, processes) == counters
    if limit is not None and counters > 1_000:
        assert processes * (PROCESS_BYTES + counters * COUNTER_BYTES) <= 0.9 * limit, "the rest is for what is pending"


@pytest.mark.parametrize(("given", "expected"), [(None, 348_966), (5_000_000, 5_000_000)])
def test_what_the_operator_sets_holds(given: int | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_settings, "memory_limit_bytes", lambda: 512 * MIB)
    assert from_settings.max_cells(Settings(rules=Path("rules"), max_cells=given)) == expected


def test_no_limit_of_version_1_is_none_in_effect() -> None:
    assert counters_within(int(NO_LIMIT), 1) == DEFAULT_COUNTERS


def test_the_figure_for_a_counter_is_that_of_the_benchmarks_with_room_to_spare() -> None:
    measured = json.loads((ROOT / "benchmarks/unit_costs.json").read_text())["cell_bytes"]["value"]
    assert measured <= COUNTER_BYTES <= 1.3 * measured
