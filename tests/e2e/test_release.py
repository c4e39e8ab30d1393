"""What `make dist` makes: whole, the same each time, and it installs and serves without this clone."""

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from headgate import __version__

from requirements import release
from tests.support.headgate import clean_environ
from tests.support.helm import helm
from tests.support.source import ROOT

pytestmark = pytest.mark.slow
ASK = """
import json, subprocess, sys
from headgate_client import Headgate
flags = ["--rules", sys.argv[2], "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--drain-s", "0"]
server = subprocess.Popen([sys.argv[1], "serve", *flags], stderr=subprocess.PIPE, text=True)
try:
    for line in server.stderr:
        event = json.loads(line)
        if event["event"] == "serving":
            break
    with Headgate(event["grpc"], "edge", timeout=60) as limiter:
        decision = limiter.check(user="alice")
finally:
    server.terminate()
    server.wait(60)
import headgate, headgate_client
print(json.dumps([headgate.__file__, headgate_client.__file__, decision.allowed, decision.degraded, server.returncode]))
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release") / "dist"
    release.release(directory, None, compiled=False)
    return directory


def test_a_release_is_whole_and_its_checksums_hold(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    assert names == {
        f"headgate-{__version__}-py3-none-any.whl",
        f"headgate-{__version__}.tar.gz",
        f"headgate_client-{__version__}-py3-none-any.whl",
        f"headgate_client-{__version__}.tar.gz",
        f"headgate-{__version__}.tgz",
        "SHA256SUMS",
    }
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    with zipfile.ZipFile(dist / f"headgate-{__version__}-py3-none-any.whl") as wheel:
        held = wheel.namelist()
    assert any(name.endswith("origin/lua/call.lua") for name in held)
    assert any(name.endswith("py.typed") for name in held)
    assert "kind: Deployment" in helm("template", "x", dist / f"headgate-{__version__}.tgz")
    with tarfile.open(dist / f"headgate-{__version__}.tar.gz") as sdist:
        assert {f"headgate-{__version__}/{name}" for name in ("pyproject.toml", "PKG-INFO")} <= set(sdist.getnames())


def test_the_same_commit_gives_the_same_files(dist: Path, tmp_path: Path) -> None:
    release.build(ROOT / "client", tmp_path)
    release.package_chart(tmp_path)
    made = sorted(tmp_path.iterdir())
    assert len(made) == 3
    for path in made:
        if path.suffix != ".whl":
            release.steady(path)
        assert path.read_bytes() == (dist / path.name).read_bytes(), path.name


def test_the_wheels_install_into_a_clean_environment_and_serve(dist: Path, tmp_path: Path) -> None:
    """Ours from the wheels alone; what they depend on is lent by this environment, so that no index is asked."""
    place = tmp_path / "clean"
    # Where the compiled build is tested, it is on the path: pip would find ours installed, and Python find it first.
    environ = {**clean_environ({}), "PYTHONPATH": ""}
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, *map(str, dist.glob("*.whl"))], env=environ, check=True, timeout=300)
    (packages,) = place.glob("lib/python3*/site-packages")
    lent = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    # After its own, so that ours come from the wheels; and no .pth of the lender, which leads to this clone.
    (packages / "lent.pth").write_text(f"{lent}\n")
    asked = subprocess.run(
        [python, "-c", ASK, place / "bin" / "headgate", ROOT / "examples" / "rules"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    server, client, allowed, degraded, status = json.loads(asked.stdout)
    assert all(Path(path).is_relative_to(place) for path in (server, client))
    assert (allowed, degraded, status) == (True, False, 0)


def test_where_nothing_can_be_compiled_a_wheel_is_pure_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself: only who insists on it (HEADGATE_COMPILE=1) is refused."""
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler, and no git to ask for the time
    monkeypatch.setattr(release, "commit_time", lambda: "315532800")
    release.build_wheel(ROOT, tmp_path, compiled="auto")
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"headgate-{__version__}-py3-none-any.whl"


def test_the_changelog_has_what_is_released() -> None:
    """A section for the version that the modules name, with entries in it."""
    for page in (ROOT / "CHANGELOG.md", ROOT / "client" / "CHANGELOG.md"):
        sections = page.read_text().split("\n## [")
        (section,) = [text for text in sections if text.startswith(f"{__version__}]")]
        assert "\n- " in section, page
        assert sections[1].startswith("Unreleased]"), page
