"""JSON for logs and terminals: the same value, and nothing in it that steers who shows it."""

import json
from typing import Any

import pytest
from headgate import plain_json
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("alice", '"alice"'),
        ("Zoë 田中 👩", '"Zoë 田中 👩"'),
        ("a\x9b31mb", '"a\\u009b31mb"'),
        ("user\u202egnp.exe", '"user\\u202egnp.exe"'),
        ("\u2066x\u2069\u200f\u061c", '"\\u2066x\\u2069\\u200f\\u061c"'),
        ("\u200b\ufeff\u2028\u2029", '"\\u200b\\ufeff\\u2028\\u2029"'),
        ("\x7f\x1b[0m\n", '"\\u007f\\u001b[0m\\n"'),
        ("half \ud800", '"half \\ud800"'),
    ],
)
def test_signs_that_steer_are_written_as_escapes(text: str, written: str) -> None:
    assert plain_json.dumps(text) == written
    assert json.loads(written) == text


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_it_is_the_same_value(value: Any) -> None:
    written = plain_json.dumps(value)
    assert json.loads(written) == value
    assert written.isprintable()
    assert json.loads(plain_json.dumps(value, indent=2)) == value
