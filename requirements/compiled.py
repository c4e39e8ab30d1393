"""The compiled build, unpacked where only those find it who look there: for tests and benchmarks.

    python requirements/compiled.py DIRECTORY
    PYTHONPATH=DIRECTORY headgate version

Nothing is written into the source: there an extension would come before the module that is being edited.
"""

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from requirements.release import build_compiled


def unpack(destination: Path) -> None:
    """Build it and put it there, in place of what is there."""
    with tempfile.TemporaryDirectory() as directory:
        build_compiled(Path(directory))
        (wheel,) = Path(directory).glob("*.whl")
        shutil.rmtree(destination, ignore_errors=True)
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(destination)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
