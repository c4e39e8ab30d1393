"""Cutting a region off: its counts go out of every key and node, what others counted stays, and it can be undone."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import structlog
from headgate.config.kinds import Peer
from headgate.cuts import forgetting
from headgate.cuts.forgetting import READER, ForgetsOtherRegions, forget_region
from headgate.cuts.service import HEARD_S, ROUNDS, CutsService
from headgate.endpoint.admins import Operator
from headgate.errors import BadRequest, NotReady
from headgate.exchange.fill import is_lost
from headgate.exchange.peer_list import PeerList
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.origin.exchange_protocol import ForeignCount, Priority
from headgate.origin.interface import OriginError
from headgate.origin.names import exchange_name
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_mark import ReadMark
from headgate.origin.placement import Placement
from headgate.region.node import RegionNode
from headgate.simulation.network import NetworkedOrigin
from headgate.v1 import regions_pb2 as pb
from structlog.testing import capture_logs

from tests.support.region import RegionWorld, virtually

LIMIT = Limit(10, Unit.HOUR, scope=Scope.GLOBAL, regions=3)
PEERS = PeerList((Peer("us", "us:1"), Peer("ap", "ap:1")))
ALICE = Operator("alice", "127.0.0.1:1")
MUCH = 2**40


async def two_nodes() -> tuple[RegionWorld, list[RegionNode]]:
    world = RegionWorld(1)
    nodes = [await world.start_node() for _ in range(2)]
    for node in nodes:
        ForgetsOtherRegions(node).follow(node.region_map)
    return world, nodes


def stated(world: RegionWorld, region: bytes, total: int, *keys: bytes) -> None:
    """A region has said what it counted."""
    now_ms = world.shards[0].time_ms()
    counts = [
        ForeignCount(
            key, LIMIT.window_ms, now_ms // LIMIT.window_ms, region, total, exchange_name(key, key, LIMIT.window_ms)
        )
        for key in keys
    ]
    world.shards[0].apply(ImportCounts(counts))


def origin_of(world: RegionWorld) -> NetworkedOrigin:
    return NetworkedOrigin(world.shards, world.networks[:1], world.random)


def desk(world: RegionWorld, node: RegionNode) -> CutsService:
    service = CutsService(PEERS, origin_of(world), node.region_map, b"desk", structlog.get_logger())
    service.follow()
    return service


def play(history: Coroutine[Any, Any, None]) -> None:
    virtually(history)


def test_what_it_stated_is_gone_on_every_node_and_what_others_stated_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "PAGE", 2)

    async def history() -> None:
        world, nodes = await two_nodes()
        keys = [b"k%d" % number for number in range(5)]
        stated(world, b"us", MUCH, *keys)
        stated(world, b"ap", 4, b"k0")
        for node in nodes:
            assert not (await world.ask(node, Charge(b"k0", LIMIT, 1))).admitted
        began_s = world.clock.monotonic()
        with capture_logs() as logs:
            answer = await desk(world, nodes[0]).cut(pb.CutRequest(region="us", why="stolen"), ALICE)
        assert (answer.keys, answer.cut.who, answer.cut.why) == (5, "alice", "stolen")
        assert ROUNDS * HEARD_S <= world.clock.monotonic() - began_s < ROUNDS * HEARD_S + 1
        assert [(log["event"], log["region"]) for log in logs] == [("region_cut_off", "us"), ("region_forgotten", "us")]
        await asyncio.sleep(1.5)
        assert (await world.ask(nodes[1], Charge(b"k0", LIMIT, 6))).admitted
        assert not (await world.ask(nodes[0], Charge(b"k0", LIMIT, 1))).admitted, "six and the four of another region"
        assert world.record(b"k0").foreign.keys() == {b"ap"}

    play(history())


def test_a_cut_is_listed_and_undone_and_then_everything_is_asked_for() -> None:
    async def history() -> None:
        world, (first, second) = await two_nodes()
        await world.shards[0].run(0, ReadChanges(b"us", Priority.NORMAL, b"x", b"drawn", 1), 1.0)
        service = desk(world, first)
        assert not (await service.restore(pb.RestoreRequest(region="us", why="a mistake"), ALICE)).restored
        await service.cut(pb.CutRequest(region="us", why="stolen"), ALICE)
        elsewhere = desk(world, second)
        assert [cut.region for cut in (await elsewhere.list_cuts(pb.ListCutsRequest(), ALICE)).cuts] == ["us"]
        assert (await elsewhere.restore(pb.RestoreRequest(region="us", why="new token"), ALICE)).restored
        assert list((await service.list_cuts(pb.ListCutsRequest(), ALICE)).cuts) == []
        mark = (await world.shards[0].run(0, ReadMark(b"us"), 1.0)).mark
        assert mark
        assert not is_lost(mark, b"the right one"), "asked for, and not as after a loss"

    play(history())


@pytest.mark.parametrize(
    ("region", "why", "reason"),
    [("eu", "stolen", "'eu' is no peer of this region .its peers: ap, us."), ("us", " ", "why: say why")],
)
def test_what_makes_no_sense_is_refused(region: str, why: str, reason: str) -> None:
    async def history() -> None:
        world, (node, _) = await two_nodes()
        with pytest.raises(BadRequest, match=reason):
            await desk(world, node).cut(pb.CutRequest(region=region, why=why), ALICE)

    play(history())


def test_two_operators_do_not_walk_through_one_shard_at_once() -> None:
    async def history() -> None:
        world, _ = await two_nodes()
        await world.shards[0].run(0, ReadChanges(READER, Priority.NORMAL, b"another desk", b"drawn", 1), 1.0)
        with pytest.raises(OriginError, match="another operator"):
            await forget_region(origin_of(world), "us", b"desk")

    play(history())


def test_an_origin_that_is_away_is_said_with_what_holds() -> None:
    async def history() -> None:
        world, (node, _) = await two_nodes()
        world.shards[0].up = False
        with pytest.raises(NotReady, match="nothing has changed"):
            await desk(world, node).cut(pb.CutRequest(region="us", why="stolen"), ALICE)

    play(history())


def test_while_keys_move_a_cut_holds_and_asks_to_be_repeated() -> None:
    """A key that moves may be missed: whoever is told that all is gone must be able to rely on it."""

    async def history() -> None:
        world, (node, _) = await two_nodes()
        stated(world, b"us", MUCH, b"k0")
        service = desk(world, node)
        moving = Placement(7, ("0",), ("0",))
        service.origin.place_by(moving)
        with pytest.raises(
            NotReady, match=r"is cut off, and its counts may still be in some keys: keys move.*; ask again"
        ):
            await service.cut(pb.CutRequest(region="us", why="stolen"), ALICE)
        assert [cut.region for cut in (await service.list_cuts(pb.ListCutsRequest(), ALICE)).cuts] == ["us"]
        service.origin.place_by(moving._replace(before=()))
        await service.cut(pb.CutRequest(region="us", why="stolen"), ALICE)
        assert not world.record(b"k0").foreign

    play(history())
