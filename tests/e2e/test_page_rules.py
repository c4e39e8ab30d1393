"""The page says how a region's rules are: staged, in shadow, behind, refused and why; in a real browser, three widths.

One node follows a plane, one a relay that is lost, and one reads a directory in which somebody makes a mistake.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.test_page import texts
from tests.e2e.test_page_region import WIDTHS
from tests.support.browser import browser
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.plane import PlaneSite, free_address
from tests.support.redis_servers import RedisServer

LONG = "tenant_" + "of_a_very_long_name_" * 3
RULES = f"""\
domain: edge
descriptors:
- {{key: user, rate_limit: {{unit: year, requests_per_unit: 100}}}}
- {{key: {LONG}, rate_limit: {{unit: year, requests_per_unit: 100}}}}
"""


@dataclass
class _Region:
    site: PlaneSite
    root: str
    relay: Headgate
    followed: Headgate
    directory: Path

    async def rules(self, *arguments: str) -> None:
        """Have a command change rules at the root."""
        status, said = await asyncio.to_thread(self.site.rules, self.root, *arguments, "--wait", "0")
        assert status == 0, said


@pytest.fixture
def region(tmp_path: Path) -> Iterator[_Region]:
    """Three nodes on one Redis, all of them with the same rules."""
    site, root, below = PlaneSite(tmp_path / "site"), free_address(), free_address()
    rules = write_rules(tmp_path / "rules", RULES)
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, "--origin-deadline-ms", "1000")
        stack.enter_context(site.plane("root", root, "--rollout-stage-s", "600"))
        site.rules(root, "publish", str(rules), "--now")
        relay = stack.enter_context(site.plane("relay", below, "--upstream", root))
        followed = stack.enter_context(site.node("followed", root, *flags))
        stack.enter_context(site.node("cut-off", below, *flags))
        stack.enter_context(serve(rules, *flags, "--node-id", "from-files"))
        yield _Region(site, root, relay, followed, rules)


async def test_what_is_staged_and_in_shadow_and_which_node_is_behind_or_refuses_and_why(region: _Region) -> None:
    async with browser() as tab:
        await tab.open(f"http://{region.followed.http}/")
        await tab.until("document.querySelector('#sums').innerText.includes('all 3 nodes')")
        await tab.until("document.querySelector('#state').innerText === 'serving'")
        assert await tab.text("#under-way .note") == "Nothing is staged or in shadow."
        nodes = {row[0]: row[4] for row in await texts(tab, "nodes")}
        entry = nodes["cut-off"]
        assert entry.endswith(" (entry 1)")
        assert nodes == {"followed (asked)": entry, "cut-off": entry, "from-files": entry.removesuffix(" (entry 1)")}

        region.relay.stop()
        (region.directory / "edge.yaml").write_text(RULES.replace("unit: year", "unit: fortnight"))
        await region.rules("put", "--domain", "edge", f"{LONG}=", "--limit", "10/year")
        await region.rules("shadow", "--domain", "edge", f"{LONG}=", "--for", "10m")
        await tab.until("document.querySelectorAll('#under-way tbody tr').length === 2")
        staged, shadow = await texts(tab, "under-way")
        assert staged == ["edge", "staged for 1% of its limit keys", "1 rule", ""]
        assert shadow[:3] == ["edge", "denies nobody", LONG]
        assert shadow[3].startswith("20")

        await tab.until("document.querySelector('#trouble').innerText.includes('may not have come to node cut-off')")
        await tab.until("document.querySelector('#nodes').innerText.includes('fortnight')")
        nodes = {row[0]: row[4] for row in await texts(tab, "nodes")}
        assert nodes["followed (asked)"].endswith(" (entry 3), not what most nodes have")
        assert " (entry 1), behind for " in nodes["cut-off"]
        assert ": UNAVAILABLE: " in nodes["cut-off"]
        assert ", not the feed's, 1 domain refused: edge: `unit` must be one of " in nodes["from-files"]
        for width in WIDTHS:
            await tab.resize(width)
            assert await tab.cut_off() == [], width
        assert tab.errors == []
