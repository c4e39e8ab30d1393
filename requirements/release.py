"""`make dist`: everything that a release consists of, in one directory, with checksums.

    python requirements/release.py DIRECTORY SBOM

Wheels and sdists of both distributions, the chart's package, the SBOM, and SHA256SUMS over all of them. Everything
carries the time of the commit and nobody's name, so the same commit gives the same files, whoever builds it.
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

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
BUILD = "import sys, setuptools.build_meta as b; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"


def commit_time() -> str:
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "315532800"


def build(project: Path, destination: Path) -> None:
    """In a copy: setuptools leaves directories behind."""
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copytree(project, Path(directory, "source"), ignore=ignored))
        environ = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
        command = [sys.executable, "-c", BUILD, str(destination.resolve())]
        subprocess.run(command, cwd=copy, env=environ, check=True, stdout=subprocess.DEVNULL)


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


def release(destination: Path, sbom: Path | None) -> list[str]:
    """Names of what was made."""
    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir(parents=True)
    for project in (ROOT / "client", ROOT):
        build(project, destination)
    package_chart(destination)
    for archive in (*destination.glob("*.tar.gz"), *destination.glob("*.tgz")):
        steady(archive)
    if sbom is not None:
        shutil.copy(sbom, destination / "headgate.sbom.cdx.json")
    (destination / SUMS).write_text(sums(destination))
    return sorted(path.name for path in destination.iterdir())


if __name__ == "__main__":
    sys.stdout.write("\n".join(release(Path(sys.argv[1]), Path(sys.argv[2]))) + "\n")
