"""The pictures of the page in docs/page.md: one of two regions under load, light and dark, and a key's own view.

python -m tests.support.page_pictures
"""

import asyncio
import random
import tempfile
import threading
from functools import partial
from pathlib import Path

from headgate_client import Headgate as Client

from tests.support.browser import browser
from tests.support.headgate import Headgate, http_request, serve, write_rules
from tests.support.redis_servers import free_port, redis_shards, shards_url
from tests.support.source import ROOT
from tests.support.waiting import wait_until

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
OPERATOR = "token-of-ann"
USERS = ("alice", "bob", "carol", "dave", "erin", "frank")


def call(server: Headgate, over: threading.Event, seed: int) -> None:
    chance = random.Random(seed)
    with Client(server.grpc, "edge", timeout=5, keep_denials=0) as client:
        while not over.wait(chance.uniform(0, 0.02)):
            client.check(user=chance.choices(USERS, [30, 8, 4, 2, 1, 1])[0])
            client.check(path=chance.choice(["/search", "/search", "/login"]))
            client.check(plan="free")


async def main() -> None:
    """Write all pictures."""
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory() as folder, redis_shards(2) as shards:
        rules = write_rules(Path(folder) / "rules", RULES)
        tokens = Path(folder) / "tokens"
        tokens.write_text(f"ann={OPERATOR}\n")
        operators = ("--admin", "127.0.0.1:0", "--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(tokens))
        flags = ("--data-dir", str(Path(folder) / "data"), "--decision-log-values", "true", *operators)
        eu = ("--region", "eu", "--peer", f"us={there}", "--exchange-insecure", "--origin", shards_url(shards))
        us = ("--region", "us", "--peer", f"eu={here}", "--exchange", there, "--exchange-insecure")
        with (
            serve(rules, *flags, *eu, "--exchange", here, "--node-id", "eu-1") as server,
            serve(rules, *eu, "--exchange", f"127.0.0.1:{free_port()}", "--node-id", "eu-2") as second,
            serve(rules, *us, "--node-id", "us-1"),
        ):
            over = threading.Event()
            seeds = [(node, over, seed) for node in (server, second) for seed in range(CALLERS)]
            callers = [threading.Thread(target=call, args=seed) for seed in seeds]
            for caller in callers:
                caller.start()
            try:
                admin = server.wait_for_event("serving")["admin"]
                page = f"http://{admin}/"
                denied = partial(http_request, admin, "GET", "/decisions")
                await asyncio.to_thread(wait_until, lambda: denied().json()["decisions"], "somebody to be denied")
                for scheme in ("light", "dark"):
                    await take(page, scheme)
                await take_key(page)
            finally:
                over.set()
                for caller in callers:
                    caller.join()


async def take_key(page: str) -> None:
    async with browser() as tab:
        await tab.open(page)
        await tab.evaluate(f"sessionStorage.setItem('operator', '{OPERATOR}')")
        await tab.evaluate("location.hash = '#key=user%3Dalice&domain=edge'")
        await tab.until("document.querySelectorAll('#key tbody tr').length >= 2")
        height = await tab.evaluate("document.querySelector('#key').getBoundingClientRect().bottom + scrollY")
        picture = await tab.picture(height + 16)
    await asyncio.to_thread((ROOT / "docs" / "images" / "page-key.png").write_bytes, picture)


async def take(page: str, scheme: str) -> None:
    async with browser() as tab:
        await tab.open(f"{page}?domain=edge&descriptor=user%3Dalice", scheme)
        await tab.until(f"Number(document.body.dataset.looks) >= {LOOKS}")
        picture = await tab.picture()
    await asyncio.to_thread((ROOT / "docs" / "images" / f"page-{scheme}.png").write_bytes, picture)


if __name__ == "__main__":
    asyncio.run(main())
