"""The file with the origin's URL: its list is followed, anything else is refused by name and changes nothing."""

from pathlib import Path
from typing import Any

import pytest
import structlog
from headgate.errors import ConfigError
from headgate.runtime.origin_file import OriginFile

LOGGER: Any = structlog.get_logger()


def opened(path: Path, url: str) -> tuple[OriginFile, list[tuple[str, ...]]]:
    path.write_text(url)
    wanted: list[tuple[str, ...]] = []
    return OriginFile(f"file:{path}", LOGGER, wanted.append), wanted


def rewritten(file: OriginFile, url: str) -> bool:
    Path(file.path).write_text(url)
    return file.refresh()


async def changed(file: OriginFile, url: str) -> bool:
    if rewritten(file, url):
        await file.changed()
        return True
    return False


async def test_another_list_is_wanted(tmp_path: Path) -> None:
    file, wanted = opened(tmp_path / "origin", "redis://u:secret@a,b:7/1")
    assert file.kept == ("a:6379", "b:7")
    assert await changed(file, "redis://u:another@a,b:7,c/1")
    assert wanted == [("a:6379", "b:7", "c:6379")]


async def test_services_of_the_same_sentinels_are_a_list_too(tmp_path: Path) -> None:
    file, wanted = opened(tmp_path / "origin", "redis+sentinel://s1,s2/one")
    assert await changed(file, "redis+sentinel://s1,s2/one,two")
    assert wanted == [("one", "two")]
    assert not await changed(file, "redis+sentinel://s3/one")
    assert "only the list of services may change" in file.error


@pytest.mark.parametrize(
    "url", ["redis+cluster://a,b", "redis://a,b/2", "rediss://a,b/1", "redis+sentinel://a/one", "memory://", ""]
)
async def test_another_origin_is_refused_and_nothing_changes(tmp_path: Path, url: str) -> None:
    file, wanted = opened(tmp_path / "origin", "redis://a,b/1")
    assert not await changed(file, url)
    assert (file.kept, wanted, file.failures) == (("a:6379", "b:6379"), [], 1)
    assert str(tmp_path / "origin") in file.error
    assert await changed(file, "redis://a/1")
    assert file.error == ""


async def test_a_list_that_the_node_can_t_use_is_said(tmp_path: Path) -> None:
    def refuse(shards: tuple[str, ...]) -> None:
        raise ConfigError("too many")

    path = tmp_path / "origin"
    path.write_text("redis://a")
    file = OriginFile(f"file:{path}", LOGGER, refuse)
    await changed(file, "redis://b")
    assert file.error == "too many"
