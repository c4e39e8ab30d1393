"""A rolling upgrade and a rollback: processes of the version before and of this one on one Redis, under load.

Requests come at three times each limit, at random times and on random nodes, all the while that processes are replaced.
Every admission is then measured as the algorithm itself measures (tests/accuracy/measure.py): the count is never above
the limit and `P`, whichever version admitted. (docs/convergence.md, 4.11.)
"""

import random
import time
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from headgate.limiter.limit import Algorithm
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import load
from tests.accuracy.measure import DEADLINE_MS, METHOD, Answered, Case, by_policy, read, request, worst_window
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.older_version import older_version
from tests.support.redis_servers import RedisServer
from tests.support.waiting import undisturbed, wait_until

HOT = [Case(200, 5, algorithm, exact=exact) for algorithm in Algorithm for exact in (False, True)]
"""Limits that are asked for three times as much as they allow: each algorithm, with a `P` of 10 and of 0."""
CALM = Case(10_000, 5, exact=True)
"""A limit that nobody comes near. With a `P` of 0 all allowances are beyond it."""
LASTING = Case(10_000, 3600, exact=True)
"""The same in a window that outlasts the test: its records don't begin anew by themselves."""
IDLE_CALLERS = 20
"""Callers with such a limit, of whom nothing is heard for a while."""
PHASE_S = 6.0
"""Time for which the same nodes are called: longer than a window."""
BEYOND_P = 4
"""Format of a record that the version before can't read."""


class Admission(NamedTuple):
    """An admitted request, as its caller saw it."""

    sent_s: float
    received_s: float
    answered: Answered


class Region:
    """Nodes of two versions on one Redis, and what their callers were admitted."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        cases = [*HOT, CALM, LASTING]
        rules = "domain: accuracy\ndescriptors:\n" + "".join(case.rule() for case in cases)
        self._rules = write_rules(directory / "rules", rules)
        self._older = older_version(directory / "older")
        self._stack = stack
        self._redis = stack.enter_context(RedisServer())
        self._admitted: dict[Case, list[Admission]] = defaultdict(list)
        self._chooser = random.Random(1)
        self._by_policy_of_stopped = 0

    def start_older(self) -> Headgate:
        return self._start(self._older)

    def start_newer(self) -> Headgate:
        return self._start({"HEADGATE_EXACT_RESET": "true"})  # admissions are placed by it

    def _start(self, environ: dict[str, str]) -> Headgate:
        options = ("--origin", self._redis.url, "--origin-deadline-ms", str(DEADLINE_MS))
        return self._stack.enter_context(serve(self._rules, *options, environ=environ))

    def stop(self, node: Headgate) -> None:
        """Drain it: what it admitted is reported, and what it holds is given back."""
        self._by_policy_of_stopped += by_policy([node])
        assert node.stop() == 0

    def by_policy(self, *nodes: Headgate) -> int:
        """Count decisions without Redis, by these nodes and by all that were stopped."""
        return self._by_policy_of_stopped + by_policy(list(nodes))

    @contextmanager
    def under_load(self, *nodes: Headgate) -> Iterator[None]:
        """Call these nodes for a phase, whatever happens meanwhile; the block ends with the phase."""
        with ThreadPoolExecutor(1) as background:
            calls = background.submit(self._call, nodes)
            yield
        calls.result()

    def call(self, *nodes: Headgate) -> None:
        with self.under_load(*nodes):
            pass

    def _call(self, nodes: tuple[Headgate, ...]) -> None:
        sent_s: list[float] = []

        def payload_of(number: int) -> bytes:
            sent_s.append(time.time())
            return request(HOT[number % len(HOT)], "all")

        def answered(number: int, message: bytes | None) -> None:
            assert message is not None, "every call is answered"
            case, received_s = HOT[number % len(HOT)], time.time()
            answer = read(case, RateLimitResponse.FromString(message), int(1000 * received_s))
            if answer.admitted:
                self._admitted[case].append(Admission(sent_s[number], received_s, answer))

        outcome = load.run_paced(
            [node.grpc for node in nodes],
            METHOD,
            payload_of,
            per_s=sum(case.load * case.requests / case.window_s for case in HOT),
            seconds=PHASE_S,
            chooser=self._chooser,
            on_answer=answered,
        )
        assert outcome.unanswered == 0

    def call_calmly(self, case: Case, *nodes: Headgate, callers: int = 1) -> float:
        """Call with that many callers, far from the limit; return the share of requests that waited for Redis."""
        before = sum(metric(node, "headgate_origin_waits") for node in nodes)
        outcome = load.run_paced(
            [node.grpc for node in nodes],
            METHOD,
            lambda number: request(case, str(number % callers)),
            per_s=200,
            seconds=2,
            chooser=self._chooser,
        )
        return (sum(metric(node, "headgate_origin_waits") for node in nodes) - before) / outcome.answers

    def worst(self, case: Case) -> int:
        admitted = self._admitted[case]
        assert len(admitted) > case.requests, "a test without admissions shows nothing"
        if case.algorithm is Algorithm.GCRA:
            return worst_bucket(case, admitted)
        return worst_window(case, [admission.answered for admission in admitted])

    def above_p(self) -> dict[str, int]:
        """By the name of a limit how far its count was above the limit and `P`, where it was."""
        above = {case.name: self.worst(case) - case.requests - case.limit.precision for case in HOT}
        return {name: by for name, by in above.items() if by > 0}

    def beyond_p(self) -> int:
        """Count the records that the version before can't read."""
        client = self._redis.client
        fields = [client.hmget(key, ["w", "b"]) for key in client.scan_iter(_type="hash")]
        return sum((window or bucket or b"\0")[0] == BEYOND_P for window, bucket in fields)


def worst_bucket(case: Case, admitted: list[Admission]) -> int:
    """The most that was in a bucket that leaks at the rate, if each was decided when that makes the least of it.

    When it was decided is not known, only that it was between sending and receiving. So of all pairs of a sending and
    a receiving: what was admitted surely in between, less what leaked.
    """
    per_s = case.requests / case.window_s
    received: list[float] = []
    worst = 0.0
    for first in sorted(admitted, reverse=True):
        insort(received, first.received_s)
        leaks = (place + 1 - per_s * (last_s - first.sent_s) for place, last_s in enumerate(received))
        worst = max(worst, *leaks)
    return int(worst)


def metric(node: Headgate, name: str) -> float:
    """A counter's value, summed over its labels."""
    families = text_string_to_metric_families(node.get("/metrics").body.decode())
    (family,) = [family for family in families if family.name == name]
    return sum(sample.value for sample in family.samples if sample.name == f"{name}_total")


def unreadable(*nodes: Headgate) -> float:
    return sum(metric(node, "headgate_shard_unreadable") for node in nodes)


def older_nodes(node: Headgate) -> list[int]:
    """What a node's log says of others of the version before: how many, each time that it changed."""
    return [event["older_nodes"] for event in node.events if event["event"] == "allowances_within_precision"]


def seemed_gone(*nodes: Headgate) -> bool:
    """Whether one of these nodes has once heard of no older one any more."""
    return any(0 in older_nodes(node) for node in nodes)


@contextmanager
def region(directory: Path) -> Iterator[Region]:
    with ExitStack() as stack:
        yield Region(directory, stack)


@pytest.mark.long
def test_during_a_rolling_upgrade_both_versions_together_stay_within_the_limit_and_p(tmp_path: Path) -> None:
    undisturbed(lambda attempt: upgrade(tmp_path / str(attempt)))


def upgrade(directory: Path) -> object:
    """Replace two nodes, one by one; return what shows that the machine was too busy, if anything."""
    with region(directory) as world:
        old, last = world.start_older(), world.start_older()
        with world.under_load(old, last):
            first = world.start_newer()
        world.call(old, last, first)
        with world.under_load(last, first):
            world.stop(old)
            second = world.start_newer()
        world.call(last, first, second)
        if seemed_gone(first, second):
            return "an older node was silent for so long that it seemed gone"
        assert not any(event["event"] == "record_unreadable" for event in old.events + last.events)
        assert unreadable(last) == world.beyond_p() == 0
        if not world.by_policy(last, first, second):
            assert world.above_p() == {}, "while both versions live"

        assert world.call_calmly(CALM, first, second) > 0.9, "nothing is held beyond P, which is 0 here"
        assert all(older_nodes(node)[-1] > 0 for node in (first, second)), "and the log says so"

        with world.under_load(first, second):
            world.stop(last)
        wait_until(lambda: seemed_gone(first) and seemed_gone(second), "the log to say that no older node lives")
        world.call(first, second)
        disturbed = world.by_policy(first, second)
        if not disturbed:
            assert world.above_p() == {}, "from the first phase to the last"
            assert world.call_calmly(CALM, first, second) < 0.5, "with all nodes new they hold more, and few wait"
        return disturbed


@pytest.mark.long
def test_during_a_rollback_policies_decide_for_a_moment_and_then_both_versions_count_together(tmp_path: Path) -> None:
    undisturbed(lambda attempt: roll_back(tmp_path / str(attempt)))


def roll_back(directory: Path) -> object:
    """Put two older nodes in the place of newer ones; return what shows that the machine was too busy, if anything.

    An older node decides what it can't read by policy, until the newer ones have heard of it and given back.
    """
    with region(directory) as world:
        first, second = world.start_newer(), world.start_newer()
        world.call_calmly(LASTING, first, second, callers=IDLE_CALLERS)
        world.call(first, second)
        assert world.beyond_p() > IDLE_CALLERS / 2, "the newer nodes hold more than older ones would leave them"

        with world.under_load(first, second):
            old = world.start_older()
            with world.under_load(old):
                wait_until(lambda: older_nodes(first) and older_nodes(second), "the newer nodes to hear of it")
                wait_until(lambda: world.beyond_p() == 0, "everything to be given back, also what nobody asks for")
        met = unreadable(old)

        world.call_calmly(LASTING, old, callers=IDLE_CALLERS)
        with world.under_load(second, old):
            world.stop(first)
            last = world.start_older()
        with world.under_load(old, last):
            world.stop(second)
        world.call(old, last)
        if seemed_gone(first, second):
            return "the older node was silent for so long that it seemed gone"
        assert unreadable(old, last) == met, "from then on older nodes read all there is"
        bound = world.by_policy(old, last)
        assert all(by <= bound for by in world.above_p().values()), "no more than policies admitted in that moment"
    return None


@pytest.mark.long
def test_what_newer_nodes_leave_behind_can_be_read(tmp_path: Path) -> None:
    """All are stopped before the first older one starts: then nobody is left who could write a record anew."""
    with region(tmp_path) as world:
        first, second = world.start_newer(), world.start_newer()
        world.call_calmly(LASTING, first, second, callers=IDLE_CALLERS)
        world.call(first, second)
        world.stop(first)
        world.stop(second)
        assert world.beyond_p() == 0
        old = world.start_older()
        world.call_calmly(LASTING, old, callers=IDLE_CALLERS)
        assert unreadable(old) == 0
