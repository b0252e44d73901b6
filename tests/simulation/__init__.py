"""Whole clusters of the real daemon code in one loop, under a clock that jumps, from one seed.

    report = simulate(4711)
    report.violations      # what was broken, [] when every promise held
    report.events          # what happened, in order; the same for the same seed, byte for byte

Everything of a daemon but its sockets and its disk's hardware is the real thing: `jqd.daemon.Daemon` with all its
loops, the runner, the journal. `python -m tests.simulation --help` runs many.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import trio

from tests.simulation import loop
from tests.simulation.node import without_edge
from tests.simulation.plan import Plan, make_plan
from tests.simulation.world import World


class Report(NamedTuple):
    """How a run went."""

    plan: Plan
    violations: list[str]
    """Each with the moment it was found."""
    events: list[tuple[Any, ...]]
    digest: str
    """Of the events."""
    starts: int
    """How often a worker got a job."""


def simulate(
    seed: int,
    *,
    log: Callable[[Any, str, Any], Any] | None = None,
    plan: Plan | None = None,
    is_enough: Callable[[str], bool] = lambda violation: False,
) -> Report:
    """Run one seed. `log`: a structlog processor for what the daemons log; `plan`: another than the seed's own;
    `is_enough`: whether nothing but this violation is wanted, so that the run may end with it."""
    chosen = plan or make_plan(seed)

    async def main(queue: loop.RunQueue) -> World:
        async with trio.open_nursery() as outside:
            world = World(chosen, queue, outside)
            world.history.told = lambda violation: outside.cancel_scope.cancel() if is_enough(violation) else None
            await world.run()
            outside.cancel_scope.cancel()
        return world

    with without_edge(seed, chosen.kinds):
        world: World = loop.run(main, seed, log=log)
    history = world.history
    return Report(chosen, history.violations, history.events, history.digest(), history.starts)


__all__ = ["Plan", "Report", "make_plan", "simulate"]
