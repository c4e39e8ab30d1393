"""`make image`: the Dockerfile, built without a container engine, twice and the same both times; looked into; run.

    python -m tests.image.build [--once] [--archive FILE]

Debian's buildah builds it in a chroot, on a base that debootstrap makes here, because nothing can be pulled where
there is no registry: Debian's own Python in place of the official image's. Both tools are installed by apt when they
are missing, so this wants Debian or Ubuntu, root, and a package index. What it made stays in build/image, and is used
again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate import __version__

from tests.support.source import ROOT
from tests.support.waiting import wait_until

PLACE = ROOT / "build" / "image"
TOOLS = ("buildah", "debootstrap")
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
COMPILER = "gcc,libc6-dev,python3-dev"
BASE, BUILD_BASE, NAME = "localhost/headgate-base", "localhost/headgate-build-base", "localhost/headgate"
CERTIFICATES = "/etc/ssl/certs"
PATH = "PATH=/opt/headgate/bin:/usr/local/bin:/usr/bin:/bin"
LARGEST_OF_OURS = 120 * 1024 * 1024
"""Bytes that the image adds to its base."""
BUILD_TIMEOUT_S = 1200


def say(text: str) -> None:
    sys.stdout.write(f"image: {text}\n")
    sys.stdout.flush()


def run(*command: str, env: Mapping[str, str] | None = None) -> str:
    """What it says; with all of it in the error if it fails."""
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    if ended.returncode:
        raise SystemExit(f"image: {' '.join(command)}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def install_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        say(f"installing {', '.join(missing)}")
        run("apt-get", "update", "--quiet")
        run("apt-get", "install", "--yes", "--no-install-recommends", *missing)


def buildah(*arguments: str) -> str:
    storage = ["--root", str(PLACE / "storage"), "--runroot", str(PLACE / "run"), "--storage-driver", "vfs"]
    return run("buildah", *storage, *arguments, env={**os.environ, "STORAGE_DRIVER": "vfs"})


def make_base(base: str, packages: str) -> None:
    """Once: a Debian with Python, as an image."""
    if base in buildah("images", "--format", "{{.Name}}").split():
        return
    say(f"making {base} with debootstrap")
    with tempfile.TemporaryDirectory(dir=PLACE) as directory:
        root = Path(directory, "root")
        run("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(root))
        for unneeded in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
            shutil.rmtree(root / unneeded, ignore_errors=True)
        run("tar", "--create", "--file", f"{directory}/base.tar", "--directory", str(root), ".")
        shutil.rmtree(root)
        Path(directory, "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
        buildah("bud", "--quiet", "--timestamp", "0", "--tag", base, directory)


def build(tag: str) -> dict[str, Any]:
    """The image's configuration and layers."""
    say(f"building {tag}")
    trust = PLACE / "pip.conf"
    trust.write_text(f"[global]\ncert = {CERTIFICATES}/ca-certificates.crt\n")
    options = ["--no-cache", "--format", "docker", "--isolation", "chroot", "--timestamp", "0", "--tag", tag]
    for argument in (f"PYTHON={BASE}", f"BUILD={BUILD_BASE}", f"VERSION={__version__}"):
        options += ["--build-arg", argument]
    # This machine's authorities, during the build alone.
    options += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--volume", f"{trust}:/etc/pip.conf:ro"]
    buildah("bud", *options, str(ROOT))
    described: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", tag))["Docker"]
    return described


@contextmanager
def mounted(tag: str) -> Iterator[Path]:
    container = buildah("from", "--pull-never", tag).strip()
    try:
        yield Path(buildah("mount", container).strip())
    finally:
        buildah("rm", container)


def look_into(root: Path) -> None:
    """No tools to build with, nothing of a developer's, one owner, modules compiled."""
    for tool in ("pip", "pip3", "gcc", "cc", "make", "git"):
        found = [path for path in ("usr/bin", "usr/local/bin", "opt/headgate/bin") if (root / path / tool).exists()]
        assert not found, f"{tool} is in {found}"
    packages = {path.name for path in root.glob("opt/headgate/lib/python3*/site-packages/*")}
    assert not packages & {"pip", "setuptools", "wheel", "pytest", "tests"}, packages
    assert {"headgate", "headgate_client", "redis", "grpc"} <= packages
    ours = root / "opt/headgate"
    assert list(ours.rglob("*.lua")), "scripts for Redis"
    assert not [path for path in ours.rglob("*") if path.lstat().st_uid != 0], "the server could change itself"
    size = sum(path.lstat().st_size for path in ours.rglob("*"))
    assert size < LARGEST_OF_OURS, size
    say(f"{size / 2**20:.0f} MiB on top of the base, no tools to build with")


def check_configuration(config: dict[str, Any]) -> None:
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["headgate"]
    assert config["Cmd"] == ["serve"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    assert set(config["ExposedPorts"]) == {"8080/tcp", "8081/tcp", "8082/tcp"}


def serve_from(root: Path, config: dict[str, Any]) -> None:
    """As process 1 with a read-only root and no rights: healthy by its own HEALTHCHECK, decides, ends on SIGTERM."""
    command = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", sys.executable]
    command += [str(Path(__file__).with_name("launch.py")), str(root), str(ROOT / "examples" / "rules")]
    command += [*config["Env"], "--", *config["Entrypoint"], *config["Cmd"], "--drain-s", "0"]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=log, stderr=log) as engine:
        try:
            first = _child_of(engine.pid)
            inside = ["nsenter", "--target", first, "--net", "--mount", "--root", "env", "-i", *config["Env"]]
            probe = config["Healthcheck"]["Test"][1:]
            wait_until(lambda: _succeeds(*inside, *probe), "HEALTHCHECK to succeed")
            answer = json.loads(
                run(*inside, "headgate", "check", "--addr", "127.0.0.1:8081", "--domain", "edge", "user=a")
            )
            assert answer["overall_code"] == "OK", answer
            assert run(*inside, "headgate", "version") == f"headgate {__version__} (compiled)\n"
            status = Path(f"/proc/{first}/status").read_text()
            assert "\nUid:\t10001\t10001\t10001\t10001\n" in status, status
            assert "\nCapBnd:\t0000000000000000\n" in status, status
            assert "\nNoNewPrivs:\t1\n" in status, status
            assert not _succeeds(*inside, "sh", "-c", "touch /opt/headgate/x || touch /etc/x"), (
                "the root is not read-only"
            )
            os.kill(int(first), 15)
            assert engine.wait(60) == 0
        except BaseException:
            engine.kill()
            log.seek(0)
            say(log.read().decode(errors="replace"))
            raise
    say("served as uid 10001 on a read-only root, healthy by its own HEALTHCHECK, ended on SIGTERM")


def _child_of(pid: int) -> str:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text().strip(), "the namespace's first process")
    return children.read_text().split()[0]


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--once", action="store_true", help="do not build it a second time to compare")
    arguments.add_argument("--archive", metavar="FILE", help="write the image there, as docker load takes it")
    given = arguments.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    install_tools()
    make_base(BASE, PACKAGES)
    make_base(BUILD_BASE, f"{PACKAGES},{COMPILER}")
    image = build(NAME)
    if not given.once:
        again = build(f"{NAME}-again")
        assert image["rootfs"] == again["rootfs"], "two builds of the same clone differ"
        say("two builds have the same layers")
    check_configuration(image["config"])
    with mounted(NAME) as root:
        look_into(root)
        serve_from(root, image["config"])
    if given.archive:
        buildah("push", "--quiet", NAME, f"docker-archive:{given.archive}:headgate:{__version__}")
        say(f"written to {given.archive}")


if __name__ == "__main__":
    main()
