"""The picture of docs/quota.md: what three regions enforce and use of one limit, second by second, in one history.

`python -m tests.unit.quota.draw > docs/images/quota-slices.svg`
"""

import sys
from typing import Final

from headgate.limiter.shares import WHOLE

from tests.unit.quota.world import EPOCH_END_MS, Fault, History, World

LIMIT: Final = 10_000
SECONDS: Final = 280
LEFT, TOP, WIDTH, HEIGHT = 60, 76, 840, 300
EVENTS: Final = (
    (0, "start: floors until", "all have answered"),
    (70, "traffic shifts", "to 20/60/20"),
    (130, "b is cut off", ""),
    (200, "b is back", ""),
)
STORY: Final = History(
    regions=3,
    window_ms=10_000,
    limit=LIMIT,
    start_ms=EPOCH_END_MS - 1_800_000,
    length_ms=SECONDS * 1_000,
    demands=((0, (24_000, 4_500, 1_500)), (70_000, (6_000, 18_000, 6_000))),
    offsets_ms=(0, 700, -700),
    faults=(Fault(130_000, "cut", (1,), 70_000),),
    delay_ms=300,
)

STYLE: Final = """
    .page { fill: #ffffff; } .frame { fill: none; stroke: #8c959f; } .grid { stroke: #d1d9e0; }
    .a { fill: #54aeff; } .b { fill: #4ac26b; } .c { fill: #d4a72c; } .event { stroke: #59636e; stroke-dasharray: 4 4; }
    .used { fill: none; stroke: #1f2328; stroke-width: 1.5; }
    text { font: 13px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; } .note { fill: #59636e; }
    .on { fill: #0d1117; font-weight: bold; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } .grid { stroke: #30363d; } .frame { stroke: #6e7681; } .used { stroke: #f0f6fc; }
      text { fill: #e6edf3; } .note { fill: #9da7b3; } .event { stroke: #9da7b3; } .on { fill: #0d1117; }
    }"""


def x_of(second: float) -> float:
    return LEFT + WIDTH * second / SECONDS


def y_of(share: float) -> float:
    return TOP + HEIGHT * (1 - share / (1.1 * WHOLE))


def area(world: World, region: int) -> str:
    """A region's share on top of those before it, as steps."""
    upper, lower = [], []
    edges = [(at_ms, sum(shares[:region]), sum(shares[: region + 1])) for at_ms, shares in world.shares]
    for number, (at_ms, low, high) in enumerate(edges):
        beside = edges[max(0, number - 1)], edges[min(len(edges) - 1, number + 1)]
        if 0 < number < len(edges) - 1 and all(other[1:] == (low, high) for other in beside):
            continue  # in the middle of a straight line
        for second in (at_ms / 1_000 - 1, at_ms / 1_000):
            upper.append(f"{x_of(second):.1f},{y_of(high):.1f}")
            lower.append(f"{x_of(second):.1f},{y_of(low):.1f}")
    return f'<polygon class="{world.names[region]}" points="{" ".join([*upper, *reversed(lower)])}"/>'


def label(world: World, region: int, second: int) -> str:
    shares = world.shares[second][1]
    middle = sum(shares[:region]) + shares[region] / 2
    text = f"{world.names[region]} {shares[region] * 100 / WHOLE:.0f}%"
    return f'<text class="on" x="{x_of(second):.1f}" y="{y_of(middle) + 4:.1f}" text-anchor="middle">{text}</text>'


def picture(world: World) -> str:
    used = " ".join(f"{x_of(at_ms / 1_000):.1f},{y_of(cost * WHOLE / LIMIT):.1f}" for at_ms, cost in world.used)
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 430" width="960" height="430" role="img"'
        ' aria-labelledby="title description">',
        '  <title id="title">How quota slices move</title>',
        '  <desc id="description">What three regions enforce of one limit over 280 seconds, stacked, and what they'
        " use together: they begin at their floors, follow the traffic of 80/15/5, shift to 20/60/20, share out what"
        " region b had while it is cut off, and give it back when it returns. Together they never have more than the"
        " limit.</desc>",
        f"  <style>{STYLE}\n  </style>",
        '  <rect class="page" width="960" height="430"/>',
        *(f"  {area(world, region)}" for region in range(3)),
        *(
            f'  <line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y_of(part):.1f}" y2="{y_of(part):.1f}"/>'
            f'<text class="note" x="{LEFT - 8}" y="{y_of(part) + 4:.1f}" text-anchor="end">'
            f"{part * 100 // WHOLE}%</text>"
            for part in range(0, WHOLE + 1, WHOLE // 4)
        ),
        f'  <polyline class="used" points="{used}"/>',
        f'  <rect class="frame" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/>',
    ]
    for second, first, then in EVENTS:
        x = x_of(second)
        lines += [
            f'  <line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 24}" y2="{TOP + HEIGHT}"/>',
            f'  <text x="{x + 6:.1f}" y="{TOP - 26}">{first}</text><text x="{x + 6:.1f}" y="{TOP - 10}">{then}</text>',
        ]
    lines += [f"  {label(world, region, second)}" for second in (50, 110, 185, 255) for region in range(3)]
    lines += [
        f'  <text class="note" x="{x_of(second):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{second} s</text>'
        for second in range(0, SECONDS + 1, 20)
    ]
    lines += [
        '  <text class="note" x="60" y="20">Areas: what each region enforces of the limit. Line: what all of them use'
        " together, by the sliding window. Offered: three times the limit.</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(picture(World(STORY).run()))
