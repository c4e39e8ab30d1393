"""`make dist`: everything that a release consists of, in one directory, with checksums.

    python requirements/release.py DIRECTORY SBOM

Wheels and sdists of both distributions, the chart's package, the SBOM, and SHA256SUMS over all of them. The server has
two wheels: one for every platform, and one that is compiled for this platform and this Python (setup.py), which pip
takes where it fits. Everything carries the time of the commit and nobody's name, so the same commit gives the same
files, whoever builds it; what is compiled, with the same compiler.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging import tags

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
WHEEL = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1], {'--build-option': sys.argv[2:]})"
SDIST = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"


def commit_time() -> str:
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "315532800"


def build(project: Path, destination: Path) -> None:
    """The sdist and the wheel for every platform."""
    _build(project, destination, SDIST)
    build_wheel(project, destination, compiled="0")


def build_compiled(destination: Path) -> None:
    """The server's wheel for this platform and this Python (setup.py)."""
    build_wheel(ROOT, destination, *_platform(), compiled="1")


def build_wheel(project: Path, destination: Path, *options: str, compiled: str) -> None:
    """`compiled`: as HEADGATE_COMPILE says it."""
    _build(project, destination, WHEEL, *options, compiled=compiled)


def _platform() -> list[str]:
    """For the C library of this machine and later ones: `linux_x86_64`, which wheels are by themselves, has no bound,
    and an index refuses it."""
    bounded = [tag for tag in tags.platform_tags() if tag.startswith(("manylinux", "musllinux"))]
    return [f"--plat-name={bounded[0]}"] if bounded else []


def _build(project: Path, destination: Path, program: str, *options: str, compiled: str = "0") -> None:
    """In a copy: setuptools leaves directories behind."""
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copytree(project, Path(directory, "source"), ignore=ignored))
        environ = {**os.environ, "SOURCE_DATE_EPOCH": commit_time(), "HEADGATE_COMPILE": compiled}
        command = [sys.executable, "-c", program, str(destination.resolve()), *options]
        built = subprocess.run(command, cwd=copy, env=environ, check=False, stdout=subprocess.PIPE, text=True)
        if built.returncode:
            # Much is said of what goes well, too: only here does it matter.
            raise SystemExit(f"{built.stdout}\n{project} was not built")


def package_chart(destination: Path) -> None:
    helm = str(Path(sys.executable).with_name("helm"))
    command = [helm, "package", str(ROOT / "charts" / "headgate"), "--destination", str(destination)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def steady(archive: Path) -> None:
    """The same archive without what differs from one machine and minute to the next: order, times, owners."""
    time = int(commit_time())
    with tarfile.open(archive) as packed:
        found = [(member, packed.extractfile(member)) for member in packed.getmembers() if member.isfile()]
        files = sorted((member.name, member.mode & 0o100, data.read()) for member, data in found if data is not None)
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=time) as zipped,
        tarfile.open(mode="w", fileobj=zipped, format=tarfile.PAX_FORMAT) as packed,
    ):
        for name, executable, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), time, 0o755 if executable else 0o644
            packed.addfile(member, io.BytesIO(data))


def sums(directory: Path) -> str:
    """As `sha256sum --check` reads them."""
    files = sorted(path for path in directory.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def release(destination: Path, sbom: Path | None, *, compiled: bool) -> list[str]:
    """Names of what was made. Compiling takes minutes: without it nothing else differs."""
    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir(parents=True)
    for project in (ROOT / "client", ROOT):
        build(project, destination)
    if compiled:
        build_compiled(destination)
    package_chart(destination)
    for archive in (*destination.glob("*.tar.gz"), *destination.glob("*.tgz")):
        steady(archive)
    if sbom is not None:
        shutil.copy(sbom, destination / "headgate.sbom.cdx.json")
    (destination / SUMS).write_text(sums(destination))
    return sorted(path.name for path in destination.iterdir())


if __name__ == "__main__":
    sys.stdout.write("\n".join(release(Path(sys.argv[1]), Path(sys.argv[2]), compiled=True)) + "\n")
