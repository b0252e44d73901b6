"""Pictures of figures, as SVG: bars with their spread on a logarithmic scale, and percentiles as lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW = 960, 150, 300, 26
TOP, BOTTOM, HEIGHT = 50, 40, 300
STRONG, WEAK = "#1f5fa8", "#9dc0e6"
COLORS = ("#1f5fa8", "#c2571a", "#2e7d4f", "#7a4aa0")
SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)


@dataclass(frozen=True)
class Bar:
    """A figure with its spread, and what stands beside it."""

    name: str
    value: float
    least: float
    greatest: float
    note: str
    strong: bool = True


def bars(title: str, rows: Sequence[Bar]) -> str:
    """A horizontal bar for each."""
    low, high = _decades([row.least for row in rows] + [row.greatest for row in rows])
    span = WIDTH - LEFT - RIGHT

    def x(value: float) -> float:
        return LEFT + span * (math.log10(max(value, 10.0**low)) - low) / (high - low)

    height = TOP + ROW * len(rows) + BOTTOM
    parts = [_text(LEFT, 24, title, size=15)]
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts += [
            _line(at, TOP - 8, at, height - BOTTOM, "#ddd"),
            _text(at, height - 18, f"{10.0**power:,g}", "middle"),
        ]
    for place, row in enumerate(rows):
        y = TOP + place * ROW
        color = STRONG if row.strong else WEAK
        parts += [
            f'<rect x="{LEFT}" y="{y}" width="{x(row.value) - LEFT:.1f}" height="{ROW - 8}" fill="{color}"/>',
            _line(x(row.least), y + 9, x(row.greatest), y + 9, "#222", 2),
            _text(LEFT - 8, y + 13, row.name, "end"),
            _text(x(row.greatest) + 8, y + 13, f"{row.value:,.0f}  {row.note}"),
        ]
    return _svg(height, parts)


def percentiles(title: str, lines: Mapping[str, Sequence[float]], unit: str = "ms") -> str:
    """A line for each: the value at percentiles 50 to 100."""
    ordered = {name: sorted(values) for name, values in lines.items() if values}
    low, high = _decades([value for values in ordered.values() for value in (values[0], values[-1])])
    span, floor = WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM

    def y(value: float) -> float:
        return floor - (floor - TOP) * (math.log10(max(value, 10.0**low)) - low) / (high - low)

    xs = [LEFT + span * place / (len(SHARES) - 1) for place in range(len(SHARES))]
    parts = [_text(LEFT, 24, title, size=15)]
    parts += [_text(x, HEIGHT - 18, f"{share * 100:g}", "middle") for x, share in zip(xs, SHARES, strict=True)]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts += [_line(LEFT, at, LEFT + span, at, "#ddd"), _text(LEFT - 8, at + 4, f"{10.0**power:g} {unit}", "end")]
    for place, (name, values) in enumerate(ordered.items()):
        found = [values[min(len(values) - 1, int(len(values) * share))] for share in SHARES]
        points = " ".join(f"{x:.1f},{y(value):.1f}" for x, value in zip(xs, found, strict=True))
        color = COLORS[place % len(COLORS)]
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>',
            _text(LEFT + span + 10, TOP + 20 * place, f"{name}: {found[0]:.2f} to {found[-1]:.2f} {unit}", color=color),
        ]
    return _svg(HEIGHT, parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten that all of these lie between; at least one apart."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    return low, max(low + 1, math.ceil(math.log10(max(positive))))


def _svg(height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12, color: str = "#222") -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}"'
    return f"<text {at}>{escape(text)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: int = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'
