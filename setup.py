"""The optional compiled build: the modules that pyproject.toml names under `tool.headgate.compiled`, through mypyc.

HEADGATE_COMPILE says whether a wheel carries them compiled:

    0     no: pure Python, for every platform.
    1     yes, or there is no wheel. What compiles them is then asked for as a build requirement.
    auto  (or nothing) if mypyc and a C compiler are there already; if that fails in any way, pure Python.

So `pip install .`, which builds apart from what is installed, is pure Python, needs no compiler and takes no minutes.
Editable installs and sdists are always of the source. Everything else about the distribution is in pyproject.toml.
"""

import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

ROOT = Path(__file__).parent
PACKAGE = Path("server", "headgate")
ASKED = os.environ.get("HEADGATE_COMPILE") or "auto"
WHEEL = "bdist_wheel" in sys.argv
"""Else what is asked for are metadata, an sdist or an editable install."""
COMPILES = "mypy[mypyc]>=2.4"
MYPY = (
    # Nothing of this project's or a user's configuration, nor what else is installed: the same source gives the same C.
    # Other distributions' types are unknown, then; what is compiled hardly uses them, and `make lint` checks them.
    "--config-file=",
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--cache-dir=build/mypy",
)


def listed(project: Mapping[str, Any]) -> list[str]:
    """The paths of all modules that are compiled, below the package. A name with `.*` is a package without `not`."""
    asked: Mapping[str, Any] = project["tool"]["headgate"]["compiled"]
    found: list[str] = []
    for name in asked["modules"]:
        pattern = name.replace(".*", "/[!_]*").replace(".", "/") + ".py"
        paths = [path.relative_to(ROOT / PACKAGE).as_posix() for path in (ROOT / PACKAGE).glob(pattern)]
        if not paths:
            raise SystemExit(f"pyproject.toml: tool.headgate.compiled names {name}, and there is no such module")
        found += sorted(paths)
    left_out = {name.replace(".", "/") + ".py" for name in asked["not"]}
    return [path for path in found if path not in left_out]


def extensions() -> list[Extension]:
    """One library with all of it, and a small one per module that leads there."""
    from mypyc.build import mypycify  # noqa: PLC0415  # it is there only where something is compiled

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    paths = [(PACKAGE / path).as_posix() for path in listed(project)]
    made: list[Extension] = mypycify([*MYPY, *paths], opt_level="3", debug_level="0", group_name="headgate")
    return made


def build() -> None:
    """What setuptools calls."""
    if ASKED not in ("0", "1", "auto"):
        raise SystemExit(f"HEADGATE_COMPILE is {ASKED!r}: accepted are 0, 1 and auto")
    if ASKED == "1":
        setup(setup_requires=[COMPILES], ext_modules=extensions() if WHEEL else [])
        return
    if ASKED == "auto" and WHEEL:
        try:
            if not any(map(shutil.which, ("cc", "gcc", "clang"))):
                raise OSError("there is no C compiler")
            setup(ext_modules=extensions())
            return
        except (Exception, SystemExit) as error:  # mypyc and setuptools end the process where something is wrong
            sys.stderr.write(f"headgate: not compiled, pure Python: {error}\n")
    setup()


if __name__ == "__main__":
    build()
