"""`multiply_divide` of common.lua against Python's integers, run by a real Redis: its numbers are doubles."""

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from headgate.limiter.limit import MAX_UINT32
from headgate.rules.limits import MAX_WINDOW_MS
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.redis_servers import RedisServer

COMMON = (files("headgate.origin") / "lua" / "common.lua").read_text()
EXACT = 2**53

Product = tuple[int, int, int, int]
"""a, b, c, d of floor((a * b + c) / d)."""


def _source() -> str:
    """The function with the constants that it uses, and a loop over its arguments."""
    constants = re.findall(r"^local (?:EXACT|DIGIT) = .*$", COMMON, re.MULTILINE)
    (function,) = re.findall(r"^local function multiply_divide.*?^end$", COMMON, re.MULTILINE | re.DOTALL)
    loop = """
local results = {}
for i = 1, #ARGV, 4 do
  local a, b, c, d = unpack(ARGV, i, i + 3)
  local whole, rest = multiply_divide(tonumber(a), tonumber(b), tonumber(c), tonumber(d))
  results[#results + 1] = string.format('%.0f %.0f', whole, rest)
end
return results
"""
    assert len(constants) == 2
    return "\n".join(["local floor = math.floor", *constants, function, loop])


SOURCE = _source()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@st.composite
def shares(draw: st.DrawFn) -> Product:
    """A sliding window's: the previous count, the time that is left, the window."""
    window_ms = draw(st.integers(1, MAX_WINDOW_MS))
    return draw(st.integers(0, EXACT - 1)), draw(st.integers(0, window_ms)), 0, window_ms


@st.composite
def arrivals(draw: st.DrawFn) -> Product:
    """A bucket's: the cost, the window, the rest of the arrival time, the rate. The result stays below 2^53."""
    window_ms, rate = draw(st.integers(1, MAX_WINDOW_MS)), draw(st.integers(1, MAX_UINT32))
    rest = draw(st.integers(0, rate - 1))
    most = min(EXACT - 1, ((EXACT - 1) * rate - rest) // window_ms)
    return draw(st.integers(0, most)), window_ms, rest, rate


@given(products=st.lists(shares() | arrivals(), min_size=1, max_size=100))
@example([(28_567, MAX_WINDOW_MS, 0, 1_000_003)])
@example([(EXACT - 1, MAX_WINDOW_MS, 0, MAX_WINDOW_MS)])
@example([(EXACT - 1, 1, 1, 2)])
@example([(EXACT - 1, MAX_WINDOW_MS - 1, 0, MAX_WINDOW_MS)])
def test_it_is_exact_for_all_that_rules_allow(server: RedisServer, products: list[Product]) -> None:
    arguments = [number for product in products for number in product]
    answers = server.client.eval(SOURCE, 0, *arguments)
    assert [tuple(map(int, answer.split())) for answer in answers] == [divmod(a * b + c, d) for a, b, c, d in products]
