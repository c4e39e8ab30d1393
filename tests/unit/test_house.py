"""The script that measures the source finds what is planted in a small one."""

from pathlib import Path

import pytest

from benchmarks import house


def tree(root: Path, files: dict[str, str]) -> list[house.Module]:
    """A clone with these files below server/headgate, read."""
    for name, text in files.items():
        path = root / "server" / "headgate" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.read(root)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param('"""One.\n\nTwo."""\n', 0, id="a docstring"),
        pytest.param("# why\n\nx = 1  # why\n", 1, id="comments and blank lines"),
        pytest.param('x = """a\n\nb"""\n', 3, id="a string that is a value"),
        pytest.param('x = 1\n"""Its unit."""\n', 2, id="the docstring of an attribute"),
        pytest.param('def f():\n    """One."""\n    return (\n        1\n    )\n', 4, id="a function"),
    ],
)
def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings(tmp_path: Path, text: str, lines: int) -> None:
    assert [house.code_lines(module) for module in tree(tmp_path, {"a.py": text})] == [lines]


def test_generated_code_is_left_out(tmp_path: Path) -> None:
    assert [module.path for module in tree(tmp_path, {"v1/a_pb2.py": "x = 1\n", "a.py": "x = 1\n"})] == ["a.py"]


def test_a_cycle_is_found_through_type_checking_and_within_functions(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headgate.p.b import B\n",
            "p/b.py": "def f():\n    from headgate.p import c\n",
            "p/c.py": "import headgate.p.a\n",
            "p/d.py": "from headgate.p.a import A\n",
        },
    )
    assert house.cycles(house.imports(modules)) == [["headgate.p.a", "headgate.p.b", "headgate.p.c"]]


def test_long_files_functions_and_classes_are_named_with_their_size(tmp_path: Path) -> None:
    function = "def f():\n" + "    x = 1\n" * house.MOST_FUNCTION_LINES
    method = "class C:\n" + "    x = 1\n" * house.MOST_CLASS_LINES
    modules = tree(tmp_path, {"a.py": function + method + "x = 1\n" * house.MOST_FILE_LINES, "b.py": "x = 1\n"})
    assert house.long_functions(modules) == [("a.py:1 f", 51)]
    assert house.long_classes(modules) == [("a.py:52 C", 301)]
    assert house.long_files(modules) == [("a.py", 752)]


def test_a_declared_table_is_named_as_one(tmp_path: Path) -> None:
    table = next(iter(house.TABLES))
    modules = tree(tmp_path, {table: "x = 1\n" * (house.MOST_FILE_LINES + 1)})
    assert house.long_files(modules) == [(f"{table} (a table)", 401)]


def test_clauses_and_names_used_twice_are_found(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        {
            "a.py": '"""What it is."""\nclass C:\n    """Asks."""\n    x = 1\n    """Of all."""\n',
            "b.py": "class C: ...\nclass _P: ...\n",
            "c.py": "class _P: ...\n",
        },
    )
    assert [place.where for place in house.clauses(modules)] == ["a.py:1 What it is.", "a.py:5 Of all."]
    assert [place.where for place in house.names_used_twice(modules)] == ["C (a.py:2, b.py:1)"]


def test_the_tables_exist() -> None:
    server = Path(__file__).parents[2] / "server" / house.PACKAGE
    assert [table for table in house.TABLES if not (server / table).is_file()] == []
