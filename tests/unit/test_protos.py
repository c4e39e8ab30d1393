"""Generated messages are what protos/ says, and those of Envoy mean on the wire what Envoy's mean.

The official messages come from xds-protos. It is no dependency: it lies beside the
environment's packages, in a directory of its own, and is loaded in another interpreter.
"""

import filecmp
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
XDS = Path(sys.prefix) / "xds"
GENERATED = {"client": "headgate_client/wire", "server": "headgate"}
"""Where it lies, by the distribution's folder."""
COMPARE = Path(__file__).with_name("protos_official.py")

# In Envoy 1.40 itself, and newer than any xds-protos on PyPI.
NEWER_THAN_OFFICIAL = {"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.is_negative_hits": [4, "bool", "one"]}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What protos/generate.py makes now."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "protos" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    output = tmp_path_factory.mktemp("generated")
    for folder in GENERATED:
        (output / folder).mkdir()
    module.generate(*(output / folder for folder in GENERATED))
    return output


def _files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for folder, package in GENERATED.items()
        for path in (root / folder / package).rglob("*_pb2*.py*")
        if path.suffix != ".pyc"
    }


def test_generated_modules_are_neither_missing_nor_left_over(fresh: Path) -> None:
    assert _files(ROOT) == _files(fresh)
    assert len(_files(fresh)) >= 11


def test_generated_modules_are_up_to_date(fresh: Path) -> None:
    """Byte for byte; `make protos` generates them."""
    names = sorted(_files(fresh))
    _, different, unreadable = filecmp.cmpfiles(ROOT, fresh, names, shallow=False)
    assert (different, unreadable) == ([], [])


def _run(command: str) -> Any:
    """The JSON that a command of protos_official.py prints, in an interpreter of its own."""
    assert XDS.is_dir(), "make installs xds-protos there"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(XDS), str(ROOT / "client"), str(ROOT / "server")])}
    result = subprocess.run(
        [sys.executable, str(COMPARE), command], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_field_and_value_is_the_official_one() -> None:
    """Number, type and label of each field, number of each enum value, types of each method."""
    ours, official = _run("ours"), _run("official")
    assert len(ours) > 40
    unofficial = {name: what for name, what in ours.items() if official.get(name) != what}
    assert unofficial == NEWER_THAN_OFFICIAL


def test_every_official_field_of_our_messages_is_there() -> None:
    """And a newer xds-protos shows what Envoy has added since."""
    ours, official = _run("ours"), _run("official")
    assert set(official) - set(ours) == set()


def test_both_live_in_one_process_and_read_each_other() -> None:
    """A request and a response with every field set, there and back, in either direction."""
    outcome = _run("exchange")
    assert outcome == {"request": True, "response": True}


def test_every_field_of_an_xds_stream_is_the_official_one() -> None:
    """Number, type and label; the official messages have more fields, which no server of rate limits reads or fills."""
    ours, official = _run("xds"), _run("xds_official")
    assert len(ours) > 25
    assert {name: what for name, what in ours.items() if official.get(name) != what} == {}
