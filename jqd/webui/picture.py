"""Computes coordinates for pictures that templates draw as SVG: flows from left to right, and lines over time. Also
computes the table of the last hour, minute by minute, from which the chart on the page *Now* is drawn.

Sizes are SVG attributes and colours are in the style sheet, as the pages' security policy allows no inline styles.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from jqd.client import FlowJob
from jqd.domain.dates import date_in, lasting
from jqd.webui.values import number

JOBS_MAX = 200  # more jobs would be unreadable
EDGES_MAX = 2_000
NODE_WIDTH, NODE_HEIGHT = 176, 44  # pixels: a name of 20 letters, and its state
GAP_X, GAP_Y = 56, 14
NAME_CHARS_MAX = 20
LINE_WIDTH, LINE_HEIGHT = 120, 28
CHART_WIDTH, CHART_HEIGHT = 720, 160
COLUMNS = ("Minute", "Pushed", "Started", "Succeeded", "Failed", "Wait, half", "Wait, 95 %", "Run, half", "Run, 95 %")


class Node(NamedTuple):
    job: FlowJob
    x: int
    y: int

    @property
    def label(self) -> str:
        name = self.job.name
        return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "…"


class Picture(NamedTuple):
    nodes: Sequence[Node]
    edges: Sequence[str]
    """SVG path data, one for each line between two jobs."""
    width: int
    height: int
    node_width: int = NODE_WIDTH
    node_height: int = NODE_HEIGHT


def draw(jobs: Sequence[FlowJob], depths: Mapping[str, int]) -> Picture | None:
    """Lay out a flow from left to right, a column for each depth, each job near its parents. None if there are too many
    jobs or links."""
    if not 0 < len(jobs) <= JOBS_MAX:
        return None
    links = _links(jobs)
    if len(links) > EDGES_MAX:
        return None
    parents: dict[str, list[str]] = {job.job_id: [] for job in jobs}
    for parent, child in links:
        parents[child].append(parent)
    rows: dict[str, int] = {}
    nodes: dict[str, Node] = {}
    for depth in range(max(depths.values()) + 1):
        column = [job for job in jobs if depths[job.job_id] == depth]
        column.sort(key=lambda job: _mean([rows[parent] for parent in parents[job.job_id] if parent in rows]))
        for row, job in enumerate(column):
            rows[job.job_id] = row
            nodes[job.job_id] = Node(job, depth * (NODE_WIDTH + GAP_X) + 1, row * (NODE_HEIGHT + GAP_Y) + 1)
    edges = [_edge(nodes[parent], nodes[child]) for parent, child in links]
    width = max(node.x for node in nodes.values()) + NODE_WIDTH + 1
    height = max(node.y for node in nodes.values()) + NODE_HEIGHT + 1
    return Picture([*nodes.values()], edges, width, height)


def points(numbers: Sequence[float], width: int, height: int, most: float) -> str:
    """Return numbers over time as points of an SVG polyline. `most`: number drawn at the upper edge."""
    step = width / max(1, len(numbers) - 1)
    scale = (height - 2) / most if most else 0
    return " ".join(f"{place * step:.1f},{height - 1 - each * scale:.1f}" for place, each in enumerate(numbers))


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / max(1, len(numbers))


def _links(jobs: Sequence[FlowJob]) -> list[tuple[str, str]]:
    """Return the (parent, child) pairs of which both jobs are in `jobs`, each pair once."""
    here = {job.job_id for job in jobs}
    edges = [(parent, job.job_id) for job in jobs for parent in job.parents]
    edges += [(job.job_id, child) for job in jobs for child in job.children]
    return [(parent, child) for parent, child in dict.fromkeys(edges) if parent in here and child in here]


def _edge(parent: Node, child: Node) -> str:
    x, y = parent.x + NODE_WIDTH, parent.y + NODE_HEIGHT // 2
    to_x, to_y = child.x, child.y + NODE_HEIGHT // 2
    half = (to_x - x) // 2
    return f"M{x} {y}C{x + half} {y} {to_x - half} {to_y} {to_x} {to_y}"


class Cell(NamedTuple):
    """A cell of the table of the last hour."""

    text: str
    number: str
    """The number that the chart draws; empty: none."""


def hour_rows(history: Mapping[str, Any]) -> list[list[Cell]]:
    """Return the table of the last hour: a row for each step (minute) of the history, the oldest first."""
    return [_hour_row(step, history) for step in history["steps"]]


def _hour_row(step: Mapping[str, Any], history: Mapping[str, Any]) -> list[Cell]:
    at = date_in(step["at"])
    counts = (step["pushed"], step["started"], step["succeeded"], step["failed"] + step["dead"])
    return [
        Cell(f"{at:%H:%M}", f"{at.timestamp():.0f}") if at else Cell("", ""),
        *(Cell(number(count), str(count)) for count in counts),
        *(
            _seconds(step[field], history[f"{field}_bounds"], share)
            for field in ("wait", "run")
            for share in (0.5, 0.95)
        ),
    ]


def _seconds(counts: Sequence[int], bounds: Sequence[float], share: float) -> Cell:
    if not sum(counts):
        return Cell("–", "")
    is_above, bound = below(counts, bounds, share)
    return Cell(f"{'>' if is_above else '≤'} {spoken(bound)}", f"{bound:g}")


def below(counts: Sequence[int], bounds: Sequence[float], share: float) -> tuple[bool, float]:
    """Find the histogram bucket in which `share` of all counts is reached. Returns (False, upper bound of the bucket);
    for the last, unbounded bucket (True, its lower bound)."""
    due = share * sum(counts)
    found = next((bound for bound, met in zip(bounds, accumulate(counts), strict=False) if met >= due), None)
    return found is None, bounds[-1] if found is None else found


def spoken(seconds: float) -> str:
    """Return a duration as text; below a second in ms."""
    return lasting(seconds) if seconds >= 1 else f"{seconds * 1000:.0f} ms"
