"""What the compiled build is made of. It compiles nothing: `make test-compiled` does, and runs all tests over it."""

import importlib.util
import inspect
import pkgutil
import re
import runpy
import tomllib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import headgate
import pytest
from headgate.build import BUILD
from packaging.requirements import Requirement

from tests.support.source import ROOT

SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "server" / "headgate"
HEIRS_ALLOWED = "@mypyc_attr(allow_interpreted_subclasses=True)"
listed: Callable[[Mapping[str, Any]], list[str]] = SETUP["listed"]


def naming(modules: list[str], left_out: Mapping[str, str]) -> Mapping[str, Any]:
    return {"tool": {"headgate": {"compiled": {"modules": modules, "not": left_out}}}}


def test_every_module_on_the_list_exists_and_is_there_once() -> None:
    paths = listed(PROJECT)
    assert len(paths) == len(set(paths)) > 40
    for path in paths:
        assert (PACKAGE / path).is_file()
        name = "headgate." + path.removesuffix(".py").replace("/", ".")
        assert importlib.util.find_spec(name) is not None, name
    assert {"handler.py", "build.py", "region/engine.py", "limiter/decision.py"} <= set(paths)


def test_what_is_left_out_of_a_package_exists_and_has_its_reason() -> None:
    for name, reason in PROJECT["tool"]["headgate"]["compiled"]["not"].items():
        path = name.replace(".", "/") + ".py"
        assert (PACKAGE / path).is_file(), name
        assert path not in listed(PROJECT)
        assert len(reason.split()) > 3, name


def test_a_name_is_a_module_and_one_with_a_star_is_its_package() -> None:
    whole = listed(naming(["limiter.*"], {}))
    assert set(whole) == {f"limiter/{path.name}" for path in (PACKAGE / "limiter").glob("[!_]*.py")}
    assert listed(naming(["limiter.*", "plan"], {"limiter.gcra": "…"})) == [
        *(path for path in whole if path != "limiter/gcra.py"),
        "plan.py",
    ]
    with pytest.raises(SystemExit, match=r"names region\.engines, and there is no such module"):
        listed(naming(["region.engines"], {}))


@pytest.mark.pure("sources are read")
def test_no_interpreted_class_inherits_from_a_compiled_one_that_does_not_allow_it() -> None:
    """It could not be made in the compiled build, and no test of pure Python would say so."""
    compiled = {"headgate." + path.removesuffix(".py").replace("/", ".") for path in listed(PROJECT)}
    names = {module.name for module in pkgutil.walk_packages(headgate.__path__, "headgate.")}
    refused = []
    for name in sorted(names - compiled - {"headgate.__main__"}):
        classes = inspect.getmembers(importlib.import_module(name), inspect.isclass)
        for each in [made for _, made in classes if made.__module__ == name and not issubclass(made, Exception | Enum)]:
            for base in each.__mro__[1:]:
                protocol = getattr(base, "_is_protocol", False)
                if base.__module__ in compiled and not protocol and HEIRS_ALLOWED not in inspect.getsource(base):
                    refused.append(f"{each.__module__}.{each.__qualname__}({base.__qualname__})")
    assert refused == []


@pytest.mark.pure("it says what the source is")
def test_the_source_is_pure_python_and_holds_nothing_compiled() -> None:
    assert BUILD == "pure Python"
    assert [path for path in PACKAGE.parent.rglob("*") if path.suffix in (".so", ".pyd", ".c")] == []


def test_what_compiles_it_is_locked_as_it_is_tested() -> None:
    pins = [dict(re.findall(r"^([a-z-]+)==([^ ]+)", Path(ROOT, "requirements", name).read_text(), re.MULTILINE))
            for name in ("build.lock", "test.lock")]  # fmt: skip
    assert pins[0].items() <= pins[1].items()
    wanted = Requirement(SETUP["COMPILES"])
    assert pins[0][wanted.name] in wanted.specifier
    assert "setuptools" in pins[0]
    assert f"'{wanted}\\nsetuptools" in (ROOT / "Makefile").read_text(), "what `make lock` asks for"


def test_every_test_is_in_a_part_that_runs_on_both_builds() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (words,) = re.findall(r"^ALL_TESTS := (.+)$", makefile, re.MULTILINE)
    recipes = dict(re.findall(r"^(test[a-z-]*):.*\n\t(.+)$", makefile, re.MULTILINE))
    assert all(recipes[name].endswith("$(MAKE) $(ALL_TESTS)") for name in ("test", "test-compiled"))
    left = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(left) > 200
    for part in [word for word in words.split() if not word.startswith("--")]:
        ignored = set(map(Path, re.findall(r"--ignore (\S+)", recipes[part])))
        named = set(map(Path, re.findall(r"(?<!--ignore )\btests/\S+", recipes[part])))
        left -= {path for path in left if named & set(path.parents) and not ignored & set(path.parents)}
    assert left == set()


@pytest.mark.parametrize("asked", ["2", "yes"])
def test_another_wish_is_refused(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_COMPILE", asked)
    with pytest.raises(SystemExit, match=f"HEADGATE_COMPILE is '{asked}': accepted are 0, 1 and auto"):
        runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")
