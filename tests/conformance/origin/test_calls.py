"""Calls as most are: one request per report, of keys that are often new; and where each decision and answer lands."""

import random

import pytest
from headgate.origin import shard_memory
from headgate.origin.interface import Origin
from headgate.origin.names import exchange_name
from headgate.origin.operations.call import Call
from headgate.origin.protocol import NOW_AND_THEN, PEEK, UNBOUND, UNREADABLE, CellReport, Report

from tests.conformance.origin.cases import ANY, WINDOW_MS, bucket, cell, counts, looked_at, said, window
from tests.conformance.origin.conftest import RedisHarness, RedisSetup
from tests.conformance.origin.test_reference import History, same_answers
from tests.support.waiting import PATIENCE_S

HERE = b"headgate:here/"


class SoleWants(History):
    """Calls as most are: every key once, and most wanted by one request that wants nothing else."""

    def call(self) -> Call:
        self.now_ms += self.chooser.choice([0, 1, 30, 400, 1_100, 3_000])
        reports: dict[bytes, Report] = {}
        for _ in range(4):
            report = self.report()
            reports.setdefault(report.key, report)
        places = self.chooser.sample(range(len(reports)), self.chooser.randint(0, len(reports)))
        requests = [((place, self.chooser.choice([PEEK, 0, 1, 2, 9])),) for place in places]
        if requests and self.chooser.random() < 0.2:
            requests.append(requests[0])
        return Call(tuple(reports.values()), tuple(requests))


class NewKeys(SoleWants):
    """Calls with many keys that nobody has asked for yet, and some that somebody has."""

    new = 0

    def call(self) -> Call:
        self.now_ms += self.chooser.choice([0, 1, 400, 3_000])
        reports: dict[bytes, Report] = {}
        for number in range(12):
            report = self.new_key(number) if self.chooser.random() < 0.8 else self.report()
            reports.setdefault(report.key, report)
        costs = [self.chooser.choice([PEEK, 1, 1, 1, 2]) for _ in reports]
        return Call(tuple(reports.values()), tuple(((place, cost),) for place, cost in enumerate(costs)))

    def new_key(self, number: int) -> Report:
        """One report in three has something in it that a new key's has not."""
        self.new += 1
        odd = [0] * 8
        if self.chooser.random() < 0.3:
            odd[self.chooser.randrange(8)] = 1
        told = CellReport(self.now_ms // WINDOW_MS - odd[0], odd[1], odd[2], odd[3], odd[4])
        limit, precision = self.chooser.choice([1, 20]), self.chooser.choice([0, 5])
        report = window(
            self.chooser.choice("aab"),
            number * (1 - odd[5]),
            *[told] * (1 + odd[6]),
            key=f"new-{self.new}",
            limit=limit,
            rest=odd[7],
            want=self.exchanger.choice([NOW_AND_THEN, 0, 1, 3, 40]),
            precision=precision,
        )
        name = exchange_name(report.key, report.key, WINDOW_MS)
        publish_at = self.chooser.choice([0, 0, 1, 2])
        return report._replace(reset=self.chooser.choice([UNBOUND, 0, 0, 3]), publish_at=publish_at, name=name)


@pytest.mark.parametrize("seed", range(200, 212))
@pytest.mark.parametrize("kind", [SoleWants, NewKeys])
async def test_usual_calls_get_the_reference_s_answers(
    one_redis: RedisSetup, kind: type[SoleWants], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Redis drops keys by its own clock, which stands as good as still here: so must the reference.
    monkeypatch.setattr(shard_memory, "SWEEP_EVERY_MS", 10**15)
    await same_answers(one_redis, kind(seed, clock_is_set=seed % 2 == 0), forgets_nothing=True)


@pytest.fixture
async def origin(one_redis: RedisSetup) -> Origin:
    harness = RedisHarness(one_redis)
    await harness.wipe(restart=False)
    await harness.set_time(harness.time_ms)
    return harness.origin


async def test_every_decision_lands_at_its_own_request(origin: Origin) -> None:
    """Requests in another order than reports, with one cost, with two and with none."""
    full = window("a", 1, cell(100), key="full")
    reports = (full, window("a", 1, key="x"), window("a", 1, key="y"), window("a", 1, key="z"))
    wants = (
        ((3, 1),),
        ((0, 1),),
        ((1, 1), (2, 1)),
        ((1, 100),),
        (),
    )
    reply = await origin.run(0, Call(reports, wants), PATIENCE_S)
    await origin.close()
    assert reply.charged == (True, False, True, False, True)
    expected = (counts((100, 100)), counts((1, 1)), counts((1, 1)), counts((1, 1)))
    assert looked_at(reply.answers, expected) == expected


async def test_a_peek_charges_nothing_and_sees_what_is_full(origin: Origin) -> None:
    reports = (window("a", 1, cell(100), key="full"), window("a", 1, cell(99), key="nearly"))
    reply = await origin.run(0, Call(reports, (((0, PEEK),), ((1, PEEK),))), PATIENCE_S)
    await origin.close()
    assert reply.charged == (False, True)
    assert reply.answers == (counts((100, 100), left=0), counts((99, 99), left=1))


async def test_credit_is_spent(origin: Origin) -> None:
    """Charged before, and its reply lost: the retry finds it charged, though nothing else fits."""
    await origin.run(0, said(window("a", 1), wants=((100,),)), PATIENCE_S)
    retried = await origin.run(0, said(window("a", 2), wants=((100,),)), PATIENCE_S)
    beyond = await origin.run(0, said(window("a", 3), wants=((101,),)), PATIENCE_S)
    await origin.close()
    assert (retried.charged, beyond.charged) == ((True,), (False,))
    assert retried.answers == beyond.answers == (counts((100, 100), left=0),)


@pytest.mark.parametrize("kind", ["window", "bucket"])
async def test_what_cant_be_read_is_not_charged(one_redis: RedisSetup, origin: Origin, kind: str) -> None:
    spoilt = window("a", 1, key="b") if kind == "window" else bucket("a", 1)
    client = one_redis.first.client
    for place, another_type in enumerate((True, False)):
        client.delete(HERE + b"k:b")
        if another_type:
            client.set(HERE + b"k:b", "mine")
        else:
            client.hset(HERE + b"k:b", kind[0], b"\xc1")
        number = place + 1
        good = window("a", number, CellReport(counts((0, 0)).sequence, place, 0, 0, place), key="good")
        call = said(window("a", number, key="other"), spoilt, good, wants=((-1, 1), (-1, -1, 1)))
        reply = await origin.run(0, call, PATIENCE_S)
        assert reply.charged == (False, True)
        assert reply.answers[1].more == UNREADABLE
        assert reply.answers[2]._replace(left=ANY) == counts((number, number))
        assert not client.exists(HERE + b"k:b"), "nobody could ever read it"
    await origin.close()


async def test_terms_are_each_report_s_own(origin: Origin) -> None:
    """Reports of one call with one limit, with others, of other runs and kinds: terms are told once, mixed up never."""
    chooser = random.Random(1)
    limits = [chooser.choice([3, 5, 7]) for _ in range(40)]
    reports = [window(chooser.choice("abc"), 1, key=f"k{place}", limit=limit) for place, limit in enumerate(limits)]
    wants = tuple(((place, 5),) for place in range(len(limits)))
    reply = await origin.run(0, Call((*reports, bucket("a", 1, burst=4)), (*wants, ((40, 5),))), PATIENCE_S)
    await origin.close()
    assert reply.charged == (*(limit >= 5 for limit in limits), False)
