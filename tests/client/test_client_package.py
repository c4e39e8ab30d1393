"""The distribution by itself: built as pip builds it, in an environment that has nothing but what it asks for."""

import os
import pkgutil
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

import headgate_client
import pytest
from packaging.requirements import Requirement

from tests.support.headgate import Headgate, clean_environ
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

FRAMEWORKS = (
    "celery",
    "django_rest",
    "fastapi",
    "httpx",
    "requests",
    "opentelemetry",
    "prometheus",
    "fixtures",
    "local",
)
"""Modules that need somebody else's."""


def run(*command: str, **environ: str) -> str:
    # Where the compiled build is tested, it is on the path: no environment would be without the server.
    alone = {**clean_environ({}), "PYTHONPATH": "", **environ}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=alone, cwd="/")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From a copy, so that building leaves nothing in the clone."""
    source, out = tmp_path_factory.mktemp("source") / "client", tmp_path_factory.mktemp("wheel")
    for path in (ROOT / "client").rglob("*"):
        if path.is_file() and not {"__pycache__", "build"} & set(path.parts) and ".egg-info" not in str(path):
            target = source / path.relative_to(ROOT / "client")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
    run(*pip, "--no-build-isolation", "--wheel-dir", str(out), str(source))
    (built,) = out.glob("*.whl")
    return built


def needed(name: str, seen: set[str]) -> set[str]:
    """A distribution and all that it asks for, without extras."""
    if name not in seen:
        seen.add(name)
        for requirement in map(Requirement, requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name, seen)
    return seen


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an environment with the wheel, grpcio, protobuf and what these ask for."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for name in needed("grpcio", set()) | needed("protobuf", set()):
        files = [file for file in distribution(name).files or () if file.parts[0] not in ("..", "__pycache__")]
        # `google` is many distributions' folder.
        for top in {file.parts[: 2 if file.parts[0] == "google" else 1] for file in files}:
            place = packages.joinpath(*top)
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(str(distribution(name).locate_file("/".join(top))))
    return str(folder / "bin" / "python")


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
    ours = {name for name in names if name.startswith("headgate_client/")}
    files = (ROOT / "client" / "headgate_client").rglob("*.py*")
    written = {path.relative_to(ROOT / "client").as_posix() for path in files if "__pycache__" not in path.parts}
    assert ours == written | {"headgate_client/py.typed"}
    assert {name.split("/")[0] for name in names - ours} == {wheel.name.rpartition("-py3")[0] + ".dist-info"}
    wanted = [Requirement(text) for text in re.findall(r"^Requires-Dist: (.*)$", described, re.MULTILINE)]
    assert {requirement.name for requirement in wanted if requirement.marker is None} == {"grpcio", "protobuf"}
    assert "Headgate" in described.partition("\n\n")[2], "the README"


def test_it_works_without_the_server_and_without_any_framework(python: str, headgate: Headgate) -> None:
    """Every module but those for frameworks is imported, and decisions are made."""
    modules = [
        module.name
        for module in pkgutil.walk_packages(headgate_client.__path__, "headgate_client.")
        if module.name.rpartition(".")[2] not in FRAMEWORKS
    ]
    assert len(modules) > 30
    script = f"""
import asyncio, importlib, importlib.util, sys
for name in {modules!r}:
    importlib.import_module(name)
assert importlib.util.find_spec("headgate") is None
from headgate_client import AsyncHeadgate, Headgate
options = dict(timeout=30, connect_timeout=30, on_error="raise")
with Headgate(sys.argv[1], "edge", **options) as limiter:
    first = limiter.check(user="package").remaining
async def second():
    async with AsyncHeadgate(sys.argv[1], "edge", **options) as limiter:
        return (await limiter.check(user="package")).remaining
print(first, asyncio.run(second()))
for kind in (Headgate, AsyncHeadgate):
    try:
        kind.local()
    except ImportError as error:
        print(error)
"""
    missing = "local: decides with the server's own engine, and headgate is not installed: "
    how = f"{missing}pip install 'headgate-client[local]'\n"
    assert run(python, "-c", script, headgate.grpc) == f"4 3\n{how}{how}"


def test_it_lives_with_the_official_messages_of_others(headgate: Headgate) -> None:
    """xds-protos has Envoy's, googleapis-common-protos google.rpc, opentelemetry-proto its own: in any order."""
    script = """
import importlib, sys
ours = [
    "headgate_client",
    "headgate_client.middleware.rpc_status",
    "headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2",
]
others = [
    "envoy.service.ratelimit.v3.rls_pb2",
    "opentelemetry.proto.metrics.v1.metrics_pb2",
    "google.rpc.error_details_pb2",
]
for name in (ours + others if sys.argv[2] == "first" else others + ours):
    importlib.import_module(name)
from envoy.service.ratelimit.v3 import rls_pb2
from headgate_client import Headgate
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2 as private
assert rls_pb2.RateLimitRequest is not private.RateLimitRequest
with Headgate(sys.argv[1], "edge", timeout=30, connect_timeout=30, on_error="raise") as limiter:
    print(limiter.check(bulk="x").limit)
"""
    xds = str(Path(sys.prefix) / "xds")
    assert os.path.isdir(xds)
    for order in ("first", "last"):
        assert run(sys.executable, "-c", script, headgate.grpc, order, PYTHONPATH=xds) == "1000000\n"
