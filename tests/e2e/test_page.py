"""The page at `/`, in a real browser, before a server under load."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from headgate_client import Headgate as Client

from tests.support.browser import Tab, browser
from tests.support.headgate import Headgate, http_request, serve, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

PAUSE_S = 0.02
ALICE = quote(json.dumps([["user", "alice"]]))


@contextlib.contextmanager
def traffic(server: Headgate) -> Iterator[None]:
    """One caller that is over its limit and one that is not, again and again."""
    over = threading.Event()

    def call() -> None:
        with Client(server.grpc, "edge", timeout=5, keep_denials=0) as client:
            while not over.wait(PAUSE_S):
                client.check(user="alice")
                client.check(bulk="b")

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """`user`: 5 a year; `bulk`: a million a year."""
    return write_rules(tmp_path / "rules")


@pytest.fixture
def server(rules: Path, tmp_path: Path) -> Iterator[Headgate]:
    """A node of a region, with a decision log that has values, and with traffic."""
    log = ("--data-dir", str(tmp_path / "data"), "--decision-log-values", "true")
    with (
        RedisServer() as redis,
        serve(rules, "--origin", f"redis://127.0.0.1:{redis.port}", "--origin-deadline-ms", "1000", *log) as served,
        traffic(served),
    ):
        yield served


def rows(section: str, least: int = 1) -> str:
    return f"document.querySelectorAll('#{section} tbody tr').length >= {least}"


async def texts(tab: Tab, section: str) -> list[list[str]]:
    cells = (
        f"[...document.querySelectorAll('#{section} tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    found: list[list[str]] = await tab.evaluate(cells)
    return found


async def test_the_page_shows_what_goes_on(server: Headgate) -> None:
    async with browser() as tab:
        await tab.open(f"http://{server.http}/")
        await tab.until("document.querySelector('#state').innerText === 'serving'")
        await tab.until("Number(document.body.dataset.looks) >= 3")
        await tab.until(rows("rules", 2))
        await tab.until(rows("denials"))
        assert await tab.evaluate("document.querySelector('#trouble').hidden")
        by_rule = {row[1]: [float(cell) for cell in row[2:]] for row in await texts(tab, "rules")}
        assert by_rule["bulk"][0] > 0, "within its limit"
        assert by_rule["bulk"][1] == 0
        assert by_rule["user"][1] > 0, "over it"
        (shard,) = await texts(tab, "shards")
        assert shard[1] == "closed"
        denial = (await texts(tab, "denials"))[0]
        assert denial[1:4] == ["edge", "user", "user=alice"]
        assert denial[5:7] == ["5 of 5", "5 used here"]
        hottest = {row[0]: row for row in await texts(tab, "hottest")}
        assert (hottest["user=alice"][3], hottest["user=alice"][4]) == ("5", "0 of 5 left")
        assert await tab.evaluate("document.querySelector('#hottest meter').value") == 1
        assert "in force since 20" in await tab.text("#rules .about")
        assert await tab.text("#health") == "nodes answer 1 of 1\nshards asked 1 of 1"
        assert "has no peers" in await tab.text("#regions .note")
        legend = await tab.text("#decisions .legend")
        assert "denied from memory: 0\n" not in legend
        assert await tab.evaluate("document.querySelectorAll('#decisions polygon').length") == 6
        scale = await tab.evaluate("[...document.querySelectorAll('#decisions text')].map(one => one.textContent)")
        assert {"0", "5 min ago", "now"} < set(scale)
        assert tab.errors == [], "nothing was refused by its own policy, and nothing was thrown"


async def test_a_descriptor_is_explained(server: Headgate) -> None:
    """By the form, and by a link that somebody was sent."""
    async with browser() as tab:
        await tab.open(f"http://{server.http}/")
        await tab.until(rows("denials"))
        await tab.evaluate(
            "document.querySelector('#explain [name=domain]').value = 'edge';"
            "document.querySelector('#explain [name=descriptor]').value = 'user=alice';"
            "document.querySelector('#explain button').click()"
        )
        await tab.until("document.querySelector('#explain pre').innerText")
        said = await tab.text("#explain pre")
        assert "denied" in said
        assert "5" in said
        await tab.open(f"http://{server.http}/?domain=edge&descriptor=user%3Dalice")
        await tab.until("document.querySelector('#explain pre').innerText.includes('denied')")


async def test_a_denial_is_explained_by_its_own_button(server: Headgate) -> None:
    """Whoever it was: a log without values has nothing else to go by."""
    async with browser() as tab:
        await tab.open(f"http://{server.http}/")
        await tab.until(rows("denials"))
        assert len(await texts(tab, "denials")) == 1, "one row for one key, however often it is denied"
        await tab.evaluate("document.querySelector('#denials tbody button').click()")
        await tab.until("document.querySelector('#explain pre').innerText.includes('denied')")
        assert "Rule user of domain edge applied" in await tab.text("#explain pre")
        assert tab.errors == []


async def test_what_was_denied_is_there_for_who_comes_later_by_rule(server: Headgate) -> None:
    """The server keeps it, not the tab."""
    await asyncio.to_thread(wait_until, lambda: told_denials(server), "a step of 20 s to be over")
    async with browser() as tab:
        await tab.open(f"http://{server.http}/")
        for grain_s in (2, 20):
            await tab.evaluate(f"document.querySelector('[name=grain][value=\"{grain_s}\"]').click()")
            await tab.evaluate("document.querySelector('#denied .legend').replaceChildren()")
            await tab.until("document.querySelector('#denied .legend').innerText.includes('edge user:')")
            assert await tab.evaluate("document.querySelectorAll('#denied polygon').length") == 1
        assert tab.errors == []


async def test_denials_are_told_apart_in_steps_that_are_over_by_the_rules_that_deny_most(server: Headgate) -> None:
    rules = [["edge", f"rule{number}", 20 * (number + 1)] for number in range(10)]
    under_way = {"begin_s": 38, "decisions": {}, "denials": [["edge", "late", 999]]}
    told = {"grain_s": 2, "most": 150, "buckets": [{"begin_s": 18, "decisions": {}, "denials": rules}, under_way]}
    async with browser() as tab:
        await tab.open(f"http://{server.http}/")
        legend = await tab.evaluate(
            f"(trend({json.dumps(told)}), [...document.querySelectorAll('#denied li')].map(one => one.innerText))"
        )
    assert legend == [*(f"edge rule{number}: {number + 1:.1f}" for number in range(9, 1, -1)), "(others): 3.0"]


def told_denials(server: Headgate) -> bool:
    return any("denials" in bucket for bucket in server.get("/trend?grain_s=20").json()["buckets"])


async def test_rows_are_narrowed_to_what_is_searched_for(server: Headgate) -> None:
    async with browser() as tab:
        await tab.open(f"http://{server.http}/")
        await tab.until(rows("rules", 2))
        await tab.evaluate(
            "document.querySelector('#narrow [name=text]').value = 'BULK';"
            "document.querySelector('#narrow').dispatchEvent(new Event('input'))"
        )
        await tab.until("document.querySelectorAll('#rules tbody tr').length === 1")
        assert [row[1] for row in await texts(tab, "rules")] == ["bulk"]
        assert "left out by “bulk”" in await tab.text("#rules .note")


async def test_a_shard_that_is_not_asked_is_said_at_the_top(rules: Path) -> None:
    with RedisServer() as redis, serve(rules, "--origin", redis.url) as served:
        redis.stop()
        with traffic(served):
            async with browser() as tab:
                await tab.open(f"http://{served.http}/")
                await tab.until("document.querySelector('#state').innerText === 'serving, with trouble'")
                assert await tab.evaluate("document.querySelector('#state').className") == "bad"
                assert await tab.text("#trouble") == "no shard is asked: all keys are decided by on_error"
                assert await tab.text("#health") == "nodes answer 1 of 1\nshards asked 0 of 1"


async def test_rules_that_are_refused_are_said_at_the_top_with_the_reason(rules: Path) -> None:
    with serve(rules) as served:
        (file,) = await asyncio.to_thread(lambda: list(rules.iterdir()))
        file.write_text(file.read_text().replace("unit: year", "unit: years"))
        async with browser() as tab:
            await tab.open(f"http://{served.http}/")
            await tab.until("document.querySelector('#trouble').innerText.includes('rules of edge are refused')")
            assert "must be one of second, minute" in await tab.text("#trouble")


LONG = "tenant_" + "of_a_very_long_name_" * 3


@pytest.mark.parametrize("width", [390, *(pytest.param(wide, marks=pytest.mark.long) for wide in (820, 1400))])
async def test_nothing_is_cut_off_however_narrow_the_window_and_long_the_names(tmp_path: Path, width: int) -> None:
    limit = "rate_limit: {unit: year, requests_per_unit: 2}"
    many = "".join(f"- {{key: key{number}, {limit}}}\n" for number in range(500))
    rules = write_rules(tmp_path / "rules", f"domain: edge\ndescriptors:\n- {{key: {LONG}, {limit}}}\n{many}")
    log = ("--data-dir", str(tmp_path / "data"), "--decision-log-values", "true")
    with serve(rules, *log) as served, Client(served.grpc, "edge", timeout=5, keep_denials=0) as client:
        callers = [{f"key{number}": "v" * 8 * number} for number in range(30)]
        for caller in [*callers, {LONG: "x" * 90}]:
            for _ in range(3):
                client.check([caller])
        async with browser() as tab:
            await tab.resize(width)
            await tab.open(f"http://{served.http}/")
            await tab.until(rows("denials", 20))
            await tab.until(rows("hottest", 20))
            assert await tab.cut_off() == []
            assert LONG in await tab.text("#denials tbody")
            assert await tab.evaluate("document.querySelectorAll('#denials tbody button').length") == 20


async def test_light_and_dark(server: Headgate) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        async with browser() as tab:
            await tab.open(f"http://{server.http}/", scheme)
            grounds.append(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert (await tab.picture()).startswith(b"\x89PNG")
    assert grounds == ["rgb(247, 248, 250)", "rgb(20, 23, 29)"]


async def test_values_from_outside_stay_text(rules: Path, tmp_path: Path) -> None:
    """A caller's descriptor is shown as it is, and nothing in it is run."""
    hostile = "<img src=x onerror=\"document.title='taken'\">"
    log = ("--data-dir", str(tmp_path / "data"), "--decision-log-values", "true")
    with serve(rules, *log) as served, Client(served.grpc, "edge", timeout=5, keep_denials=0) as client:
        while client.check(user=hostile).allowed:
            pass
        async with browser() as tab:
            await tab.open(f"http://{served.http}/")
            await tab.until(rows("denials"))
            assert hostile in (await texts(tab, "denials"))[0][3]
            assert await tab.evaluate("document.title") == "Headgate"
            assert await tab.evaluate("document.querySelectorAll('td img').length") == 0


async def test_a_token_is_asked_for_where_one_is_demanded(rules: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("the-token\n")
    with serve(rules, "--token-file", str(tokens)) as served:
        async with browser() as tab:
            await tab.open(f"http://{served.http}/")
            await tab.until("!document.querySelector('#token').hidden")
            await tab.evaluate(
                "document.querySelector('#token input').value = 'the-token';"
                "document.querySelector('#token button').click()"
            )
            await tab.until("document.querySelector('#regions .note').innerText.includes('has no peers')")
            assert await tab.evaluate("document.querySelector('#token').hidden")


def test_workers_have_the_page_too(rules: Path, tmp_path: Path) -> None:
    flags = ("--workers", "2", "--data-dir", str(tmp_path / "data"))
    with RedisServer() as redis, serve(rules, "--origin", f"redis://127.0.0.1:{redis.port}", *flags) as served:
        page = served.get("/")
        assert page.status == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'; connect-src 'self'")
        assert b"https://" not in page.body, "nothing is fetched from elsewhere"
        assert served.get("/decisions").json() == {"logged": True, "decisions": []}
        assert served.get(f"/explain?domain=edge&entries={ALICE}").status == 200
        for query in (
            "",
            "?domain=edge",
            "?domain=edge&entries=x",
            "?domain=edge&entries=%5B%5D",
            "?domain=edge&entries=%7B%7D",
        ):
            assert served.get(f"/explain{query}").status == 400, query
        assert served.stop() == 0


def test_with_an_admin_listener_the_page_is_there_alone(rules: Path) -> None:
    with serve(rules, "--admin", "127.0.0.1:0") as served:
        admin = served.wait_for_event("serving")["admin"]
        assert served.get("/").status == 404
        assert http_request(admin, "GET", "/").status == 200
        assert http_request(admin, "GET", "/decisions").json()["logged"] is False
        answer = http_request(admin, "GET", f"/explain?domain=edge&entries={ALICE}")
        assert answer.status == 404
        assert "data_dir" in answer.json()["error"]
