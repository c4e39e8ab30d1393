"""What a caller that is spread over three regions gets, by the scope of its limit: a table and a picture.

    python benchmarks/regions_plot.py [--svg docs/images/regions-scopes.svg]

The nodes, origins and exchangers that serve, in the simulation's time, without faults: a limit of 1,000 a minute, a key
that is new everywhere, 40 to 80 ms from region to region, an exchange each second. When in its second a region tells
the others is chance: figures of `global` and `quota` are the worst of five runs. They are the same on every machine.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.limiter.decision import Decision
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.simulation.awaiting import future_of
from headgate.simulation.history import Key
from headgate.simulation.loop import run_virtually
from headgate.simulation.regions.history import RegionAsk, RegionsHistory
from headgate.simulation.regions.world import RegionsWorld
from headgate.simulation.trace import Tracer

SVG = Path(__file__).resolve().parent.parent / "docs" / "images" / "regions-scopes.svg"
REGIONS = 3
NODES = 2
LIMIT = 1_000
WINDOW_S = 60
BEGIN_S = 20.0
"""Regions are up, know of each other and go by their slices when the window begins."""
SEEDS = {Scope.GLOBAL: range(5), Scope.QUOTA: range(5)}
"""Of runs, where chance has a part in what is admitted; one of the others."""
SCOPES = (Scope.REGION, Scope.GLOBAL, Scope.CELL, Scope.QUOTA)


class Load(NamedTuple):
    """How much is asked for in the first window: so many times the limit, in so many seconds of it, and where."""

    name: str
    times: int
    seconds: int
    regions: int = REGIONS


LOADS = (
    Load("3 × the limit over the window", 3, WINDOW_S),
    Load("10 × the limit over the window", 10, WINDOW_S),
    Load("30 × the limit over the window", 30, WINDOW_S),
    Load("3 × the limit within 2 s", 3, 2),
    Load("3 × the limit, all in one region", 3, WINDOW_S, 1),
)
PLOTTED = (LOADS[0], LOADS[3])


def history(scope: Scope, load: Load, seed: int) -> RegionsHistory:
    """Even arrivals, region by region, node by node."""
    limit = Limit(LIMIT, Unit.MINUTE, scope=scope, regions=REGIONS)
    count = load.times * LIMIT
    asks = [
        RegionAsk(
            round((BEGIN_S + load.seconds * number / count) * 1e6),
            number % load.regions,
            number // load.regions % NODES,
            0,
            1,
        )
        for number in range(count)
    ]
    begin_ms = 1_700_000_000_000 // (WINDOW_S * 1000) * WINDOW_S * 1000
    return RegionsHistory(
        seed=seed,
        name=f"{scope.value}: {load.name}",
        regions=REGIONS,
        nodes=NODES,
        shards=1,
        exchangers=1,
        deadline_ms=200,
        link_ms=(40.0, 80.0),
        unix_ms=begin_ms - round(BEGIN_S * 1000),
        offsets_ms=(0,) * REGIONS,
        keys=(Key(b"key", limit),),
        asks=tuple(asks),
        faults=(),
    )


async def play(played: RegionsHistory) -> list[float]:
    """When each admission was made, in seconds of the window."""
    world = RegionsWorld(played, Tracer())
    await world.start()
    admitted: list[float] = []
    waiting: set[asyncio.Future[Decision]] = set()

    def decided(decision: Decision) -> None:
        if decision.admitted:
            admitted.append(world.loop.time() - BEGIN_S)

    def answered(done: "asyncio.Future[Decision]") -> None:
        waiting.discard(done)
        decided(done.result())

    for ask in played.asks:
        await asyncio.sleep(max(0.0, ask.at_us / 1e6 - world.loop.time()))
        site = world.sites[ask.region]
        node = site.nodes[ask.node]
        assert node is not None
        decision = node.decide(world.charges(site, node, 0, 1))
        if isinstance(decision, Decision):
            decided(decision)
        else:
            future = future_of(decision)
            waiting.add(future)
            future.add_done_callback(answered)
    if waiting:
        await asyncio.wait(waiting)
    for site in world.sites:
        await world.kill_exchanger(site, 0)
        for number in range(NODES):
            await world.kill_node(site, number)
    return admitted


def worst(scope: Scope, load: Load) -> list[float]:
    """Of the runs, the one in which most is admitted."""
    return max((run_virtually(play(history(scope, load, seed))) for seed in SEEDS.get(scope, [0])), key=len)


# The picture

WIDTH, HEIGHT = 1040, 420
PANEL_W, PANEL_H, LEFT, TOP, GAP = 420, 280, 62, 76, 96
MOST_TIMES = 3.0
STYLE = """
    .page { fill: #ffffff; } .grid { stroke: #d1d9e0; } .limit { stroke: #59636e; stroke-dasharray: 5 5; }
    text { font: 13px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
    .head { font-weight: bold; font-size: 15px; } .note { fill: #59636e; font-size: 12px; }
    .line { fill: none; stroke-width: 2.2; } .region { stroke: #cf222e; } .global { stroke: #0969da; }
    .cell { stroke: #1a7f37; } .quota { stroke: #8250df; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } .grid { stroke: #30363d; } .limit { stroke: #9da7b3; }
      text { fill: #e6edf3; } .note { fill: #9da7b3; }
      .region { stroke: #f85149; } .global { stroke: #388bfd; } .cell { stroke: #2ea043; } .quota { stroke: #a371f7; }
    }
"""
DESCRIPTION = (
    "Admitted by three regions together, as a multiple of the limit, over the first window of a new key. "
    "Left, 3 times the limit over 60 seconds; right, within 2 seconds."
)
AXES = "admitted in all regions together, × the limit, over the time since the window began"


def curve(admitted: Sequence[float], x: Callable[[float], float], y: Callable[[float], float], until_s: float) -> str:
    """A path with one step per change of a pixel at most."""
    points, last = [f"M {x(0):.1f} {y(0):.1f}"], -1.0
    for number, at_s in enumerate(sorted(admitted), start=1):
        if at_s > until_s:
            break
        if x(at_s) - last >= 1:
            last = x(at_s)
            points.append(f"L {last:.1f} {y(number / LIMIT):.1f}")
    within = sum(at_s <= until_s for at_s in admitted)
    ends = [at_s for at_s in admitted if at_s <= until_s]
    points.append(f"L {x(max(ends, default=0.0)):.1f} {y(within / LIMIT):.1f} H {x(until_s):.1f}")
    return " ".join(points)


def panel(left: float, load: Load, results: dict[Scope, list[float]], until_s: int) -> Iterator[str]:
    """One load, all scopes."""

    def x(at_s: float) -> float:
        return left + PANEL_W * at_s / until_s

    def y(times: float) -> float:
        return TOP + PANEL_H * (1 - times / MOST_TIMES)

    yield f'  <text class="head" x="{left:.0f}" y="{TOP - 18}">{load.name}</text>'
    for times in (0, 1, 2, 3):
        kind = "limit" if times == 1 else "grid"
        yield f'  <path class="{kind}" d="M {left:.0f} {y(times):.1f} h {PANEL_W}"/>'
        yield f'  <text class="note" x="{left - 30:.0f}" y="{y(times) + 4:.1f}">{times} ×</text>'
    for part in range(5):
        at_s = until_s * part / 4
        yield f'  <text class="note" x="{x(at_s) - 10:.1f}" y="{TOP + PANEL_H + 20}">{at_s:g} s</text>'
    for scope, admitted in results.items():
        yield f'  <path class="line {scope.value}" d="{curve(admitted, x, y, until_s)}"/>'


def picture(results: dict[Load, dict[Scope, list[float]]]) -> str:
    """Two loads beside each other, and what the lines are."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title description">',
        '  <title id="title">What three regions admit together, by scope</title>',
        f'  <desc id="description">{DESCRIPTION}</desc>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'  <text class="note" x="{LEFT}" y="26">{AXES}</text>',
    ]
    for number, load in enumerate(PLOTTED):
        until_s = WINDOW_S if load.seconds == WINDOW_S else 2 * load.seconds
        lines += panel(LEFT + number * (PANEL_W + GAP), load, results[load], until_s)
    for number, scope in enumerate(SCOPES):
        left = LEFT + 130 * number
        lines.append(f'  <path class="line {scope.value}" d="M {left} {HEIGHT - 18} h 28"/>')
        lines.append(f'  <text x="{left + 36}" y="{HEIGHT - 14}">{scope.value}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, default=SVG, help="where the picture goes (%(default)s)")
    arguments = parser.parse_args()
    print(f"{'admitted, × the limit':<36}" + "".join(f"{scope.value:>9}" for scope in SCOPES))
    results: dict[Load, dict[Scope, list[float]]] = {}
    for load in LOADS:
        results[load] = {scope: worst(scope, load) for scope in SCOPES}
        shares = [len([at_s for at_s in admitted if at_s < WINDOW_S]) / LIMIT for admitted in results[load].values()]
        print(f"{load.name:<36}" + "".join(f"{share:>9.2f}" for share in shares), flush=True)
    arguments.svg.write_text(picture(results))


if __name__ == "__main__":
    main()
