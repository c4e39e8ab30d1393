"""Limits written where they hold, `limiter.limit("2/hour", …)`: sent along, and up to the server."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headgate_client import AsyncHeadgate, Descriptor, Headgate, RateLimited
from headgate_client.testing import FakeServer

from tests.client.support import PATIENT_S, Make
from tests.support.headgate import Headgate as Process
from tests.support.headgate import serve, write_rules

RULE = "descriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
POLICIES = {"lower": "", "allow": "request_limits: allow\n", "refuse": "request_limits: refuse\n"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Domains named after what they make of limits in requests, each with 3 an hour for a user."""
    rules = tmp_path_factory.mktemp("rules")
    for domain, said in POLICIES.items():
        write_rules(rules, f"domain: {domain}\n{said}{RULE}", f"{domain}.yaml")
    with serve(rules) as process:
        yield process


def admitted(client: Any, *descriptors: Descriptor) -> int:
    return sum(client.check(list(descriptors)).allowed for _ in range(6))


@pytest.mark.parametrize(
    ("domain", "rate", "entries", "expected"),
    [
        pytest.param("lower", "2/hour", {"user": "less"}, 2, id="less than the rule holds"),
        pytest.param("lower", "5/hour", {"user": "more"}, 3, id="more than the rule is the rule"),
        pytest.param("lower", "5/hour", {"job": "none"}, 5, id="where no rule is, it holds by itself"),
        pytest.param("allow", "5/hour", {"user": "more"}, 5, id="it is taken instead"),
    ],
)
def test_what_becomes_of_a_limit_is_up_to_the_server(
    server: Process, make: Make, domain: str, rate: str, entries: dict[str, str], expected: int
) -> None:
    """The decision says which limit held; whoever asks, threads or tasks."""
    client = make(server.grpc, domain, timeout=PATIENT_S, connect_timeout=PATIENT_S)
    named = {name: f"{value}-{type(client).__name__}" for name, value in entries.items()}
    assert admitted(client, Descriptor(named, limit=rate)) == expected
    assert client.check([Descriptor(named, limit=rate)]).limit == expected


def test_a_server_that_refuses_them_says_so_and_on_error_decides(server: Process, make: Make) -> None:
    client = make(server.grpc, "refuse", timeout=PATIENT_S, connect_timeout=PATIENT_S, on_error="closed")
    decision = client.check([Descriptor({"user": "a"}, limit="2/hour")])
    assert not decision
    assert decision.error is not None
    assert decision.error.status == "INVALID_ARGUMENT"
    assert "limits in requests are refused here (request_limits: refuse)" in decision.error.message


def test_the_fake_does_as_the_server_would(server: Process) -> None:
    """All that the real one was asked above, and the refusal."""
    for policy, rate, entries, expected in (
        ("lower", "2/hour", {"user": "a"}, 2),
        ("lower", "5/hour", {"user": "b"}, 3),
        ("lower", "5/hour", {"job": "c"}, 5),
        ("allow", "5/hour", {"user": "d"}, 5),
        ("refuse", "5/hour", {"user": "e"}, 0),
    ):
        fake = FakeServer(request_limits=policy)  # type: ignore[arg-type]  # from a table
        fake.limit("edge", "3/hour", user="*")
        assert admitted(fake.client("edge", on_error="closed"), Descriptor(entries, limit=rate)) == expected


# The decorator


@pytest.fixture
def fake() -> FakeServer:
    """With a domain, and no rule that applies."""
    return FakeServer({"domain": "edge", "descriptors": []})


def work(user: str) -> str:
    """Stand for what is limited."""
    return user


def calls(function: Any, *arguments: str) -> int:
    done = 0
    with contextlib.suppress(RateLimited):
        for _ in range(9):
            function(*arguments)
            done += 1
    return done


def test_a_function_has_its_limit_in_place(fake: FakeServer) -> None:
    limiter = fake.client("edge")

    search = limiter.limit("2/minute", key=lambda user: {"user": user})(work)
    assert (calls(search, "alice"), calls(search, "bob"), calls(search, "alice")) == (2, 2, 0)
    fake.clock.advance(120)
    assert calls(search, "alice") == 2


def test_blocks_keywords_lists_and_tasks_too(fake: FakeServer) -> None:
    limiter = fake.client("edge")
    with limiter.limit("1/minute", user="a") as decision:
        assert decision.limit == 1
    with pytest.raises(RateLimited), limiter.limit("1/minute", user="a"):
        pass
    own = Descriptor({"org": "o"}, limit="7/minute")
    with limiter.limit("3/minute", key=[{"user": "b"}, own]) as decision:
        assert [status.limit and status.limit.requests_per_unit for status in decision.statuses] == [3, 7]

    async def twice() -> list[bool]:
        tasks = fake.async_client("edge")
        decorate = tasks.limit("1/minute", key={"user": "c"})

        @decorate
        async def task() -> bool:
            return True

        done = [await task()]
        with contextlib.suppress(RateLimited):
            done.append(await task())
        return done

    assert asyncio.run(twice()) == [True]


def test_the_key_may_still_come_first(fake: FakeServer) -> None:
    fake.limit("edge", "1/minute", user="*")
    limiter = fake.client("edge")
    assert calls(limiter.limit({"user": "a"})(work), "a") == 1
    assert calls(limiter.limit(key={"user": "b"})(work), "b") == 1


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("often", "limit: like '5/minute', got 'often'"),
        ("5 per minute", "limit: like '5/minute', got '5 per minute'"),
        ("5/fortnight", "limit: one of second, minute, hour, day, month, year after the slash, got '5/fortnight'"),
        ("4294967296/day", "limit: 0 to 4294967295 before the slash"),
    ],
)
def test_a_rate_that_is_none_is_refused_where_it_is_written(fake: FakeServer, rate: str, said: str) -> None:
    limiter = fake.client("edge")
    with pytest.raises(ValueError, match=said):
        limiter.limit(rate, user="a")
    with pytest.raises(ValueError, match=said.replace("limit:", r"descriptors\[0\].limit:", 1)):
        limiter.check([Descriptor({"user": "a"}, limit=rate)])


def test_what_makes_no_sense_is_refused(fake: FakeServer) -> None:
    limiter = fake.client("edge")
    with pytest.raises(TypeError, match="key: is given twice"):
        limiter.limit({"user": "a"}, key={"user": "b"})
    with pytest.raises(TypeError, match="key: give a descriptor"):
        limiter.limit("5/minute")
    with pytest.raises(TypeError, match="limit: a rate like '5/minute', got int 5"):
        limiter.check([Descriptor({"user": "a"}, limit=5)])  # type: ignore[arg-type]


# Without a server


def test_limits_in_place_need_no_rules_and_no_server(tmp_path: Path) -> None:
    with Headgate.local() as limiter:
        assert calls(limiter.limit("2/minute", key=lambda user: {"user": user})(work), "alice") == 2

    async def tasks() -> int:
        async with AsyncHeadgate.local() as limiter:
            return sum([(await limiter.check([Descriptor({"a": "b"}, limit="2/day")])).allowed for _ in range(4)])

    assert asyncio.run(tasks()) == 2
