"""A key's own view on the page: what `headgate key get` says, and what an operator may do to it, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from headgate_client import Headgate as Client

from tests.e2e.test_page import rows, texts
from tests.support.browser import Tab, browser
from tests.support.headgate import Headgate, http_request, serve, write_rules
from tests.support.redis_servers import RedisServer

KEY = f"#{urlencode({'key': 'user=alice', 'domain': 'edge'})}"
JSON = {"Content-Type": "application/json"}
TOKEN = {"Authorization": "Bearer token-of-ann"}
ALICE = {"key": {"domain": "edge", "entries": [{"key": "user", "value": "alice"}]}}


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    tokens = tmp_path / "admins"
    tokens.write_text("ann=token-of-ann\n")
    return ("--admin", "127.0.0.1:0", "--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(tokens))


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(tmp_path: Path, flags: tuple[str, ...], redis: RedisServer) -> Iterator[Headgate]:
    """A node whose caller alice is at its limit of 5."""
    rules = write_rules(tmp_path / "rules")
    with serve(rules, *flags, "--origin", redis.url, "--origin-deadline-ms", "1000", "--node-id", "here") as served:
        spend(served)
        yield served


def spend(server: Headgate) -> None:
    with Client(server.grpc, "edge", timeout=5, keep_denials=0, on_error="raise") as client:
        while client.check(user="alice").allowed:
            pass


def allowed(server: Headgate) -> bool:
    with Client(server.grpc, "edge", timeout=5, keep_denials=0, on_error="raise") as client:
        return client.check(user="alice").allowed


def admin(server: Headgate) -> str:
    return str(server.wait_for_event("serving")["admin"])


async def sign_in(tab: Tab) -> None:
    await tab.until("!document.querySelector('#operator').hidden")
    await tab.evaluate(
        "document.querySelector('#operator input').value = 'token-of-ann';"
        "document.querySelector('#operator button').click()"
    )
    await tab.until("!document.querySelector('#act').hidden")


async def act(tab: Tab, what: str, answer: str = "yes", **fields: str) -> str:
    """Choose and fill in, press the button, answer the question. Returns the question."""
    await tab.evaluate(f"document.querySelector('#act [value={what}]').click()")
    for name, value in {"why": "a test", **fields}.items():
        await tab.evaluate(f"document.querySelector('#act [name={name}]').value = {json.dumps(value)}")
    await tab.evaluate("document.querySelector('#key .done').textContent = ''")
    await tab.evaluate("document.querySelector('#act button').click()")
    await tab.until("document.querySelector('#confirm').open")
    question = await tab.text("#confirm p")
    await tab.evaluate(f"document.querySelector('#confirm [value={answer}]').click()")
    await tab.until("document.querySelector('#key .done').innerText")
    return question


async def facts(tab: Tab) -> dict[str, str]:
    pairs = "[...document.querySelectorAll('#key dt')].map(name => [name.innerText, name.nextSibling.innerText])"
    return dict(await tab.evaluate(pairs))


async def test_a_row_leads_to_its_key_by_keyboard_and_the_address_can_be_sent(server: Headgate) -> None:
    async with browser() as tab:
        await tab.open(f"http://{admin(server)}/")
        await tab.until(rows("hottest"))
        assert await tab.evaluate("document.querySelector('#key').hidden")
        await tab.evaluate("document.querySelector('#hottest tbody a').focus()")
        await tab.press("Enter", 13)
        await tab.until("!document.querySelector('#key').hidden")
        assert await tab.evaluate("location.hash") == KEY
        assert await tab.text("#key .error") == "An operator's token is needed to look at a key."
        await sign_in(tab)
        state = await facts(tab)
        assert state["limit"].startswith("5 per ")
        assert state["used"].startswith("5 of 5, 0 left; the next fits in ")
        assert state["on node here"].startswith("5 here, 0 on others")
        assert [row[1] for row in await texts(tab, "key")] == ["5"]
        for width in (390, 820, 1400):
            await tab.resize(width)
            assert await tab.cut_off() == [], width
        await tab.evaluate("document.querySelector('#key a[href=\"#\"]').click()")
        await tab.until("document.querySelector('#key').hidden")
        assert tab.errors == []


async def test_an_operator_resets_overrides_and_blocks_after_saying_yes(server: Headgate) -> None:
    async with browser() as tab:
        await tab.open(f"http://{admin(server)}/{KEY}")
        await sign_in(tab)
        question = await act(tab, "reset", answer="no")
        assert question == "Forget all that was counted on user=alice of domain edge?"
        assert await tab.text("#key .done") == "Nothing was changed."
        assert not allowed(server)
        await act(tab, "reset")
        assert (await tab.text("#key .done")).startswith(
            "user=alice of domain edge was reset: its limit is whole again"
        )
        assert (await facts(tab))["used"].startswith("0 of 5, 5 left")
        assert allowed(server)
        question = await act(tab, "override", limit="1", **{"for": "2h"})
        assert question == "Give user=alice of domain edge the limit 1 for 2h?"
        assert "has the limit 1 until 20" in await tab.text("#key .done")
        state = await facts(tab)
        assert state["override"].startswith("by ann until 20")
        assert ": a test; the rule says 5 per " in state["override"]
        assert not allowed(server)
        await act(tab, "end")
        assert await tab.text("#key .done") == "The rule's own limit holds for user=alice of domain edge."
        assert allowed(server)
        await act(tab, "block", **{"for": "1h"})
        assert "is blocked until 20" in await tab.text("#key .done")
        assert "on every node of region local within a second" in await tab.text("#key .done")
        assert (await facts(tab))["blocked"] == "user=alice is blocked by ann: a test"
        assert not allowed(server)
        await act(tab, "unblock")
        assert "user=alice of domain edge is no longer blocked" in await tab.text("#key .done")
        assert allowed(server)
        audit = [event for event in server.events if event.get("who") == "ann"]
        assert [event["event"] for event in audit] == [
            "key_reset", "key_overridden", "key_override_removed", "caller_blocked", "caller_unblocked",
        ]  # fmt: skip
        assert {event["peer"] for event in audit} == {"http:127.0.0.1"}
        assert tab.errors == []


async def test_what_goes_wrong_is_said_and_a_wrong_token_is_asked_for_again(server: Headgate) -> None:
    async with browser() as tab:
        await tab.open(f"http://{admin(server)}/{KEY}")
        await sign_in(tab)
        await act(tab, "block", **{"for": "500d"})
        assert await tab.text("#key .done") == (
            "Not done: for_ms: at most 400 days are accepted; what holds for longer is a rule"
        )
        await tab.evaluate("sessionStorage.setItem('operator', 'wrong')")
        await tab.until("!document.querySelector('#operator').hidden")
        assert await tab.evaluate("document.querySelector('#act').hidden")


def call(address: str, method: str, body: Any, **headers: str) -> tuple[int, Any]:
    answer = http_request(address, "POST", f"/headgate.v1.{method}", json.dumps(body).encode(), {**JSON, **headers})
    return answer.status, answer.json()


def test_operators_are_served_on_their_own_listener_with_their_token_alone(server: Headgate) -> None:
    status, state = call(admin(server), "Keys/Get", ALICE, **TOKEN)
    assert (status, state["used"], state["node"]["node"]) == (200, 5, "here")
    reset = {**ALICE, "why": "a test"}
    assert call(admin(server), "Keys/Reset", reset)[0] == 401
    assert call(admin(server), "Keys/Reset", reset, Authorization="Bearer other")[0] == 401
    assert call(server.http, "Keys/Reset", reset, **TOKEN)[0] == 404
    assert call(admin(server), "Keys/Reset", reset, **TOKEN, **{"Content-Type": "text/plain"})[0] == 415
    assert call(admin(server), "Keys/Reset", reset, **TOKEN, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert call(admin(server), "Keys/Reset", reset, **TOKEN, Host="evil.example.com")[0] == 403
    assert call(admin(server), "Process/SetLogLevel", {}, **TOKEN)[0] == 404, "not a method of the page's"
    assert call(admin(server), "Keys/Reset", {"key": 5}, **TOKEN)[0] == 400
    assert call(admin(server), "Keys/Reset", ALICE, **TOKEN) == (
        400,
        {"error": "why: say why, for whoever reads the audit log"},
    )
    assert not allowed(server), "nothing was reset"
    assert http_request(admin(server), "GET", "/headgate.v1.Keys/Get").status == 405


def test_where_decisions_are_served_operators_are_not(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with serve(write_rules(tmp_path / "rules"), *flags[2:]) as served:
        assert served.get("/").status == 200, "the page is there, without a listener of its own"
        status, told = call(served.http, "Keys/Get", ALICE, **TOKEN)
        assert (status, told["error"]) == (404, "/headgate.v1.Keys/Get is not served here: ask the `admin` listener")


def test_without_operators_it_is_said_what_to_set(tmp_path: Path) -> None:
    with serve(write_rules(tmp_path / "rules"), "--admin", "127.0.0.1:0") as served:
        status, told = call(admin(served), "Keys/Get", ALICE, **TOKEN)
        assert (status, "set admin_grpc and admin_token_file" in told["error"]) == (404, True)


def test_with_workers_the_first_one_is_asked(tmp_path: Path, flags: tuple[str, ...], redis: RedisServer) -> None:
    rules = write_rules(tmp_path / "rules")
    with serve(rules, *flags, "--origin", redis.url, "--origin-deadline-ms", "1000", "--workers", "2") as served:
        spend(served)
        assert call(admin(served), "Keys/Get", ALICE)[0] == 401
        assert call(admin(served), "Keys/Reset", {**ALICE, "why": "a test"}, **TOKEN)[0] == 200
        assert served.wait_for_event("key_reset")["peer"] == "http:127.0.0.1"
        assert call(admin(served), "Keys/Get", ALICE, **TOKEN)[1]["used"] == 0
        assert served.stop() == 0
