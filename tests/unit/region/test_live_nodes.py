"""The number of live nodes is kept over a restart; whatever else is in the file counts as one."""

from pathlib import Path

import pytest
from headgate.region.live_nodes import FILE_NAME, MOST, read_live_nodes, write_live_nodes


def test_what_was_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    for number in (1, 7, MOST):
        write_live_nodes(tmp_path, number)
        assert read_live_nodes(tmp_path) == number
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("content", [b"", b"many", b"0", b"-3", b"%d" % (MOST + 1), b"3.5", b"\xff", b"7 nodes"])
def test_nonsense_is_one_node(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert read_live_nodes(tmp_path) == 1


def test_without_a_directory_nothing_is_kept(tmp_path: Path) -> None:
    assert read_live_nodes(None) == read_live_nodes(tmp_path) == 1
    write_live_nodes(None, 5)
    write_live_nodes(tmp_path / "gone", 5)
    assert not (tmp_path / "gone").exists()
