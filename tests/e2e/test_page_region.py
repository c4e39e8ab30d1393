"""The page shows a region: real nodes over one Redis, one of them stopped, in a real browser at three widths."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_page import rows, texts, traffic
from tests.support.browser import browser
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer

LONG = "node" + "ofaverylongname" * 3
NAMES = ("one", LONG, "three")
WIDTHS = (390, 820, 1400)


@pytest.fixture
def region(tmp_path: Path) -> Iterator[dict[str, Headgate]]:
    """Three nodes, of which the first and the second have traffic."""
    rules = write_rules(tmp_path / "rules")
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, "--origin-deadline-ms", "1000", "--node-id")
        nodes = {name: stack.enter_context(serve(rules, *flags, name)) for name in NAMES}
        for name in NAMES[:2]:
            stack.enter_context(traffic(nodes[name]))
        yield nodes


async def test_all_nodes_are_shown_whichever_is_asked_and_their_figures_added_up(region: dict[str, Headgate]) -> None:
    async with browser() as tab:
        await tab.open(f"http://{region['three'].http}/")
        await tab.until("document.querySelector('#sums').innerText.includes('all 3 nodes')")
        assert await tab.text("#sums") == "Figures are those of all 3 nodes of region local."
        await tab.until(rows("rules", 2))
        assert await tab.text("#state") == "serving"
        assert "nodes answer 3 of 3" in await tab.text("#health")
        nodes = {row[0]: row for row in await texts(tab, "nodes")}
        assert set(nodes) == {"one", LONG, "three (asked)"}
        assert {row[1] for row in nodes.values()} == {"serving"}
        assert len({row[4] for row in nodes.values()}) == 1, "one version of the rules"
        # The node that is asked has no traffic of its own.
        hottest = {row[0]: row for row in await texts(tab, "hottest")}
        assert hottest["user=alice"][4] == "0 of 5 left"
        legend = await tab.text("#decisions .legend")
        assert "denied from memory: 0\n" not in legend
        for width in WIDTHS:
            await tab.resize(width)
            assert await tab.cut_off() == [], width
        assert tab.errors == []


async def test_a_stopped_node_is_named_and_the_sums_say_that_they_lack_it(region: dict[str, Headgate]) -> None:
    async with browser() as tab:
        await tab.open(f"http://{region['one'].http}/")
        await tab.until("document.querySelector('#sums').innerText.includes('all 3 nodes')")
        region[LONG].send(signal.SIGSTOP)
        try:
            await tab.until("document.querySelector('#state').innerText === 'serving, with trouble'")
            assert f"no answer from node {LONG}: the figures lack" in await tab.text("#trouble")
            assert await tab.text("#sums") == "Figures are those of 2 of 3 nodes, one, three of region local."
            assert "nodes answer 2 of 3" in await tab.text("#health")
            nodes = {row[0]: row for row in await texts(tab, "nodes")}
            assert nodes[LONG][1].startswith("no answer, last heard ")
            for width in WIDTHS:
                await tab.resize(width)
                assert await tab.cut_off() == [], width
        finally:
            region[LONG].send(signal.SIGCONT)
        await tab.until("document.querySelector('#sums').innerText.includes('all 3 nodes')")
        assert tab.errors == []
