"""Refunds and resets in two regions, while nodes are killed, Redis is wiped and replies are lost."""

import random
import signal
from collections import Counter
from pathlib import Path

import grpc
from headgate.keys.peek_key import CellPeek
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.e2e.regions.world import BACK_LIMIT, DOMAIN, LOOK_S, World
from tests.support.headgate import Headgate, run
from tests.support.waiting import PATIENCE_S, wait_until

KEY = "back"
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
LARGEST = 20
FAULTS = 4
"""In turn: replies lost, Redis wiped, a node killed, and nothing; each after an equal share of the requests."""
LOST_REPLIES, WIPE, KILL = 1, 2, 3
TOKENS = "operator=token-of-the-operator\n"


class Ledger:
    """What was charged and given back of one value, by region."""

    def __init__(self, world: World, value: str, flags: tuple[str, ...]) -> None:
        self.value = value
        self._world = world
        self._flags = flags
        self._charged: Counter[str] = Counter()
        self._given: Counter[str] = Counter()

    def charge(self, region: str, node: Headgate, cost: int) -> None:
        self._world.ask(node, KEY, self.value, cost)
        self._charged[region] += cost

    def give_back(self, region: str, node: Headgate, cost: int) -> None:
        """No more than the region itself has charged: then all of it is given."""
        cost = min(cost, self._charged[region] - self._given[region])
        if cost:
            assert _ask_back(node, self.value, cost).overall_code == RateLimitResponse.OK
            self._given[region] += cost

    @property
    def left(self) -> int:
        return self._charged.total() - self._given.total()

    def wait_counted(self) -> None:
        """Until every region has counted both exactly, and knows the same of the others."""
        expected = {where: self._expected(where) for where in self._world.names}
        seen: list[dict[str, CellPeek]] = []

        def counted() -> bool:
            seen[:] = [self._world.counts.look(KEY, self.value)]
            return {where: cell._replace(unattributed=0) for where, cell in seen[0].items()} == expected

        try:
            wait_until(counted, f"{self.value} to be {expected}", every_s=LOOK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}, and it is {seen}") from None

    def _expected(self, where: str) -> CellPeek:
        abroad = [name for name in self._world.names if name != where]
        foreign = sum(self._charged[name] for name in abroad)
        return CellPeek(self._charged[where], 0, foreign, self._given[where], sum(self._given[name] for name in abroad))

    def forget(self) -> None:
        """The key was reset."""
        self._charged.clear()
        self._given.clear()

    def break_something(self, turn: int) -> None:
        world = self._world
        region = world.names[turn % len(world.names)]
        fault = turn % FAULTS
        if fault == LOST_REPLIES:
            world.redis[region].client.client_kill_filter(_type="normal", skipme=True)
        elif fault == WIPE:
            world.redis[region].client.flushall()
        elif fault == KILL:
            # What a killed node had not reported is gone with it, by design: so it has reported.
            self.wait_counted()
            node = world.nodes[region][0]
            node.send(signal.SIGKILL)
            node.wait_exit()
            world.begin_node(region, 0, *self._flags).wait_ready()


def operators(directory: Path) -> tuple[str, ...]:
    """Flags with which nodes serve operators."""
    (directory / "operators").write_text(TOKENS)
    return ("--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(directory / "operators"))


def give_and_take(world: World, requests: int, seed: int, flags: tuple[str, ...]) -> str:
    """So many charges and refunds, all counted exactly, everywhere; then a reset, through the same faults."""
    chance = random.Random(seed)
    ledger = Ledger(world, f"back-{seed}", flags)
    for region in world.names:
        ledger.charge(region, world.nodes[region][0], BACK_LIMIT // 4)  # enough to be told to the others
    ledger.wait_counted()
    for number in range(1, requests + 1):
        region = chance.choice(world.names)
        act = ledger.give_back if chance.random() < 0.5 else ledger.charge
        act(region, chance.choice(world.nodes[region]), chance.randint(1, LARGEST))
        if number % max(1, requests // FAULTS) == 0:
            ledger.break_something(number // max(1, requests // FAULTS))
    ledger.wait_counted()
    left = ledger.left
    _reset(world, ledger, flags, chance)
    return f"{requests} charges and refunds, {left} left of them, counted exactly; nothing of it after a reset"


def _reset(world: World, ledger: Ledger, flags: tuple[str, ...], chance: random.Random) -> None:
    """Nothing from before it counts in any region, whatever is late, lost or wiped; what comes after it counts once."""
    where, there = world.names[0], world.names[-1]
    ledger.charge(there, world.nodes[there][0], BACK_LIMIT)
    ledger.wait_counted()
    for node in world.everyone():
        wait_until(lambda node=node: not _is_let_in(node, ledger.value), "all to be used", every_s=LOOK_S)  # type: ignore[misc]
    address = world.nodes[where][1].wait_for_event("serving")["admin_grpc"]
    reset = ("key", "reset", "--addr", address, "--token-file", flags[-1], "--domain", DOMAIN)
    ended = run(*reset, f"{KEY}={ledger.value}", "--why", "a test")
    assert ended.returncode == 0, ended.stderr
    for node in world.everyone():
        wait_until(lambda node=node: _is_let_in(node, ledger.value), "the reset on every node", every_s=LOOK_S)  # type: ignore[misc]
    ledger.forget()
    ledger.wait_counted()
    for turn in (LOST_REPLIES, WIPE):
        for region in world.names:
            charging, giving = chance.choice(world.nodes[region]), chance.choice(world.nodes[region])
            ledger.charge(region, charging, chance.randint(1, LARGEST))
            if turn == WIPE:
                # What is told before anybody notices the wipe is given of what the teller brings along, by design.
                giving = charging
            else:
                ledger.wait_counted()  # a call that fails may hold a charge back for longer than a refund waits
            ledger.give_back(region, giving, 1)
        ledger.break_something(turn)
        ledger.wait_counted()


def _is_let_in(node: Headgate, value: str) -> bool:
    """What a caller is told who looks."""
    return _ask(node, value, 0).overall_code == RateLimitResponse.OK


def _ask_back(node: Headgate, value: str, cost: int) -> RateLimitResponse:
    return _ask(node, value, cost, back=True)


def _ask(node: Headgate, value: str, cost: int, *, back: bool = False) -> RateLimitResponse:
    request = RateLimitRequest(domain=DOMAIN)
    descriptor = request.descriptors.add()
    descriptor.entries.add(key=KEY, value=value)
    descriptor.hits_addend.value = cost
    descriptor.is_negative_hits = back
    with grpc.insecure_channel(node.grpc) as channel:
        call = channel.unary_unary(
            METHOD,
            request_serializer=RateLimitRequest.SerializeToString,
            response_deserializer=RateLimitResponse.FromString,
        )
        answer: RateLimitResponse = call(request, timeout=PATIENCE_S)
        return answer
