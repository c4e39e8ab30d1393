"""Every example of the client's pages runs, with a real server, and the pages hold the example files as they are."""

import ast
import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from headgate_client import AsyncHeadgate, Headgate, core
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.client.embedding import PAGES, embedded, files
from tests.support import headgate as servers
from tests.support.source import ROOT

pytestmark = pytest.mark.slow

ADDRESS = "127.0.0.1:8081"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUILT = {"node_modules", "target", "__pycache__"}
FILES = {
    path.relative_to(ROOT).as_posix()
    for suffix in ("py", "go", "java", "js")
    for path in (ROOT / "examples" / "client").rglob(f"*.{suffix}")
    if not BUILT & set(path.parts)
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, the examples get the server's decisions."""
    for kind in (Headgate, AsyncHeadgate):
        defaults = kind.__init__.__kwdefaults__
        assert defaults is not None
        assert defaults["timeout"] == core.TIMEOUT_S
        monkeypatch.setitem(defaults, "timeout", 30.0)
        monkeypatch.setitem(defaults, "connect_timeout", 30.0)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_holds_the_files_as_they_are(page: Path) -> None:
    assert page.read_text() == embedded(page.read_text()), "run `make docs`"


def test_every_example_is_on_a_page() -> None:
    shown = {path for page in PAGES for path in files(page)}
    assert shown == FILES


def blocks(page: Path) -> list[str]:
    return [code for code in PYTHON.findall(page.read_text()) if not code.startswith("# examples/client/")]


async def run(code: CodeType, names: dict[str, Any]) -> None:
    """Blocks with `await` are coroutines, and the others run at once."""
    result = eval(code, names)  # noqa: S307  our own page
    if inspect.iscoroutine(result):
        await result


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
async def test_the_examples_of_a_page_run(
    page: Path, examples_server: servers.Headgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "example"}
    for number, block in enumerate(blocks(page)):
        text = block.replace(ADDRESS, examples_server.grpc)
        code = compile(text, f"{page.name}[{number}]", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await run(code, names)
    for client in names.values():
        if isinstance(client, Headgate):
            assert client.counters["failed_open"] == 0, client.errors
            client.close()
        elif isinstance(client, AsyncHeadgate):
            assert client.counters["failed_open"] == 0, client.errors


def test_a_broken_example_would_be_seen(examples_server: servers.Headgate) -> None:
    code = compile("assert 1 == 2", "page[0]", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with pytest.raises(AssertionError):
        eval(code, {})  # noqa: S307


# Other languages: what can be checked without their compilers


def words(name: str) -> set[str]:
    return set(re.findall(r"\w+", (ROOT / "examples" / "client" / name).read_text()))


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


FIELDS = ("domain", "descriptors", "hits_addend")


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_other_languages_are_the_messages(field: str) -> None:
    assert field in RateLimitRequest.DESCRIPTOR.fields_by_name
    assert camel(field) in words("go/main.go")
    java = words("java/src/main/java/Ask.java")
    assert {f"set{camel(field)}", f"add{camel(field)}"} & java
    assert field in words("node/client.js")


@pytest.mark.parametrize("field", ["limit_remaining", "duration_until_reset"])
def test_fields_of_answers_too(field: str) -> None:
    assert field in RateLimitResponse.DescriptorStatus.DESCRIPTOR.fields_by_name
    assert camel(field) in words("go/main.go")
    assert f"get{camel(field)}" in words("java/src/main/java/Ask.java")
    assert field in words("node/client.js")
