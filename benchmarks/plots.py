"""Plots of lines and of bars, as SVG: no library, and the same bytes for the same figures."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

WIDTH, HEIGHT = 860, 360
LEFT, TOP, PLOT_W, PLOT_H = 64, 56, 760, 230
LETTER_W = 7
"""How wide a letter of a legend is, rounded up."""
COLOURS: Final = ("#0969da", "#cf222e", "#1a7f37", "#8250df", "#9a6700", "#59636e")
STYLE: Final = """
    .page { fill: #ffffff; } .grid { stroke: #d1d9e0; }
    text { font: 12px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
    .head { font-weight: bold; font-size: 15px; } .note { fill: #59636e; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } .grid { stroke: #30363d; } text { fill: #e6edf3; } .note { fill: #9da7b3; }
    }
"""

Points = Sequence[tuple[float, float]]


def _frame(title: str, description: str, body: list[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title description">',
        f'  <title id="title">{title}</title>',
        f'  <desc id="description">{description}</desc>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'  <text class="head" x="{LEFT}" y="24">{title}</text>',
        f'  <text class="note" x="{LEFT}" y="42">{description}</text>',
    ]
    return "\n".join([*lines, *body, "</svg>", ""])


def _round_up(most: float) -> float:
    """Four steps to it are numbers that people say: 1, 2, 2.5 or 5, and ten times as much or as little."""
    scale = 10.0 ** math.floor(math.log10(most / 4))
    return next(4 * scale * step for step in (1, 2, 2.5, 5, 10) if 4 * scale * step >= most)


def _grid(most: float, unit: str) -> list[str]:
    lines = []
    for part in range(5):
        y = TOP + PLOT_H * (1 - part / 4)
        lines.append(f'  <path class="grid" d="M {LEFT} {y:.1f} h {PLOT_W}"/>')
        lines.append(f'  <text class="note" x="{LEFT - 56}" y="{y + 4:.1f}">{most * part / 4:.3g}{unit}</text>')
    return lines


def _legend(names: Sequence[str]) -> list[str]:
    lines = []
    x, y = LEFT, HEIGHT - 30
    for number, name in enumerate(names):
        wide = 20 + LETTER_W * len(name)
        if x > LEFT and x + wide > WIDTH:
            x, y = LEFT, y + 18
        lines.append(f'  <rect x="{x}" y="{y - 9}" width="14" height="9" fill="{COLOURS[number % len(COLOURS)]}"/>')
        lines.append(f'  <text x="{x + 20}" y="{y}">{name}</text>')
        x += wide + 24
    return lines


def bars(title: str, description: str, groups: Mapping[str, Mapping[str, float]], unit: str = "") -> str:
    """One group of bars per kind, one bar in it per name; a name that a group lacks leaves a gap."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    most = _round_up(max((value for group in groups.values() for value in group.values()), default=1.0))
    width = PLOT_W / max(1, len(groups))
    bar = width * 0.8 / max(1, len(names))
    body = _grid(most, unit)
    for place, (kind, group) in enumerate(groups.items()):
        for number, name in enumerate(names):
            if name in group:
                height = PLOT_H * group[name] / most
                x = LEFT + place * width + width * 0.1 + number * bar
                body.append(
                    f'  <rect x="{x:.1f}" y="{TOP + PLOT_H - height:.1f}" width="{bar * 0.9:.1f}" '
                    f'height="{height:.1f}" fill="{COLOURS[number % len(COLOURS)]}"/>'
                )
        body.append(f'  <text class="note" x="{LEFT + place * width + 8:.1f}" y="{TOP + PLOT_H + 18}">{kind}</text>')
    return _frame(title, description, body + _legend(names))


def lines(title: str, description: str, series: Mapping[str, Points], *, x_unit: str, y_unit: str) -> str:
    """One line per name."""
    most_x = max((x for points in series.values() for x, _ in points), default=1.0)
    most_y = _round_up(max((y for points in series.values() for _, y in points), default=1.0) or 1.0)
    body = _grid(most_y, y_unit)
    for part in range(5):
        x = most_x * part / 4
        text = f"{x:,.0f}{x_unit}" if most_x >= 100 else f"{x:.3g}{x_unit}"
        at = f'x="{LEFT + PLOT_W * part / 4:.1f}" y="{TOP + PLOT_H + 18}" text-anchor="middle"'
        body.append(f'  <text class="note" {at}>{text}</text>')
    for number, points in enumerate(series.values()):
        path = " L ".join(
            [f"{LEFT + PLOT_W * x / most_x:.1f} {TOP + PLOT_H * (1 - y / most_y):.1f}" for x, y in sorted(points)]
        )
        colour = COLOURS[number % len(COLOURS)]
        body.append(f'  <path fill="none" stroke="{colour}" stroke-width="2.2" d="M {path}"/>')
    return _frame(title, description, body + _legend(list(series)))
