"""The table of a record's fields in docs/explain.md, from the schema. `make docs` writes it."""

import sys
from pathlib import Path
from typing import Final

from headgate.decision_log.json_lines import part_kinds
from headgate.decision_log.schema import DERIVED_FIRST, DERIVED_LAST, SCHEMA, Derived, Form, SchemaField

BEGIN: Final = "<!-- fields of a record: written by `make docs` -->\n"
END: Final = "<!-- end of the fields -->\n"
_KINDS: Final = {int: "number", str: "text", bool: "true or false"}


def fields_table() -> str:
    """Every value of a record's JSON line: name, type, meaning."""
    lines = ["| field | type | meaning |\n", "|---|---|---|\n", "| `kind` | text | `decision` |\n"]
    lines += map(_derived, DERIVED_FIRST)
    for line in SCHEMA:
        lines += _lines(line)
    lines += map(_derived, DERIVED_LAST)
    return "".join(lines)


def _derived(each: Derived) -> str:
    return f"| `{each.json}` | {_KINDS[each.kind]} | {each.meaning} |\n"


def _lines(line: SchemaField) -> list[str]:
    column = line.column
    if column.form is not Form.PLAIN:
        return [f"| `{column.json[0]}` | {column.form.value} | {column.meaning} |\n"]
    kinds = [_KINDS[kind] for _, kind in part_kinds(line)]
    meanings = [column.meaning] if column.meaning else _meanings(line.kind)
    rows = zip(column.json, kinds, meanings, strict=True)
    return [f"| `{name}` | {kind} | {meaning} |\n" for name, kind, meaning in rows]


def _meanings(parts: type) -> list[str]:
    return [hint.__metadata__[0] for hint in parts.__annotations__.values()]


def with_table(page: str) -> str:
    """The page with today's table between its marks. Raises ValueError where it has none."""
    head, _, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        raise ValueError(f"no place for the table: {BEGIN.strip()} … {END.strip()}")
    return f"{head}{BEGIN}\n{fields_table()}\n{END}{tail}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
