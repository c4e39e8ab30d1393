"""The pictures of the page in docs/page.md: a node of one of two regions under load, light and dark.

python -m tests.support.page_pictures
"""

import asyncio
import random
import tempfile
import threading
from pathlib import Path

from headgate_client import Headgate as Client

from tests.support.browser import browser
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import free_port, redis_shards, shards_url
from tests.support.source import ROOT

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 60}
- key: path
  value: /search
  rate_limit: {unit: second, requests_per_unit: 200}
- key: path
  value: /login
  rate_limit: {unit: minute, requests_per_unit: 30, class: abuse}
- key: plan
  value: free
  shadow_mode: true
  rate_limit: {unit: minute, requests_per_unit: 100}
"""
LOOKS = 12
CALLERS = 2
USERS = ("alice", "bob", "carol", "dave", "erin", "frank")


def call(server: Headgate, over: threading.Event, seed: int) -> None:
    chance = random.Random(seed)
    with Client(server.grpc, "edge", timeout=5, keep_denials=0) as client:
        while not over.wait(chance.uniform(0, 0.02)):
            client.check(user=chance.choices(USERS, [30, 8, 4, 2, 1, 1])[0])
            client.check(path=chance.choice(["/search", "/search", "/login"]))
            client.check(plan="free")


async def main() -> None:
    """Write both pictures."""
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory() as folder, redis_shards(2) as shards:
        rules = write_rules(Path(folder) / "rules", RULES)
        flags = ("--data-dir", str(Path(folder) / "data"), "--decision-log-values", "true", "--exchange-insecure")
        eu = ("--region", "eu", "--peer", f"us={there}", "--exchange", here, "--origin", shards_url(shards))
        us = ("--region", "us", "--peer", f"eu={here}", "--exchange", there, "--exchange-insecure")
        with serve(rules, *flags, *eu) as server, serve(rules, *us):
            over = threading.Event()
            callers = [threading.Thread(target=call, args=(server, over, seed)) for seed in range(CALLERS)]
            for caller in callers:
                caller.start()
            try:
                for scheme in ("light", "dark"):
                    await take(server, scheme)
            finally:
                over.set()
                for caller in callers:
                    caller.join()


async def take(server: Headgate, scheme: str) -> None:
    async with browser() as tab:
        await tab.open(f"http://{server.http}/?domain=edge&descriptor=user%3Dalice", scheme)
        await tab.until(f"Number(document.body.dataset.looks) >= {LOOKS}")
        picture = await tab.picture()
    await asyncio.to_thread((ROOT / "docs" / "images" / f"page-{scheme}.png").write_bytes, picture)


if __name__ == "__main__":
    asyncio.run(main())
