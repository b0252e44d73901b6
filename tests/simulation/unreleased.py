"""Mistakes about jobs that wait for others, planted as those of `bugs.py`.

Some need two daemons in a moment so narrow that hardly a seed has it: `tests/chaining/test_flow_walks.py` plants those.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import trio

from jqd.chaining.flows import GONE, Flows
from jqd.domain.errors import JqdError
from jqd.domain.job import Fate, Outcome
from jqd.domain.jobid import partition_of
from jqd.loops.outcomes import OutcomesLoop
from jqd.partition import Partition
from jqd.store.functions import Library
from jqd.store.links import Blocked, Parent, ParentNote, Watched, WatchPair
from jqd.testing import store
from tests.simulation import faults as faults_module
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake

CHILDREN = 100  # looked for, of one parent
HOW = {Fate.SUCCEEDED: "succeeded", Fate.FAILED: "failed", Fate.DEAD: "failed"}


def unnoted_in(*names: str) -> tuple[Any, str, Callable[[Any], Any]]:
    """A part by which these functions of the store, and no others, do not note the ends of jobs."""

    def plant(real: Library) -> Library:
        for name in names:
            begin = next(line for line in real.files[name].splitlines(keepends=True) if line.startswith("register("))
            real = real.changed(name, begin, f"{begin}  call.is_mistaken = true\n")
        noted = "if #call.ended > 0 and call.has_linked"
        return real.changed("shared/counts", noted, f"{noted} and not call.is_mistaken")

    return store, "LIBRARY", plant


def _drop_told_first(real: Real) -> Real:
    async def tell(self: Flows, ended: Sequence[Parent], rest_until_ms: int) -> bool:
        await self._store.drop_links({each.entry: each.children for each in ended})
        return bool(await real(self, ended, rest_until_ms))

    return tell


def _drop_asked_first(real: Real) -> Real:
    async def ask(self: Flows, blocked: Sequence[Blocked], rest_until_ms: int) -> None:
        await self._store.drop_links({each.entry: () for each in blocked})
        await real(self, blocked, rest_until_ms)

    return ask


def _as_it_is_dropped(real: Real) -> tuple[str, ...]:
    """No mistake: kills only where this one shows."""
    return ("after drop_links",)


def _tell_first(real: Real) -> Real:
    def build(self: Partition) -> OutcomesLoop:
        settle: Any = real(self)
        write, stores = settle._write, self._shared.stores

        async def tell_and_write(outcomes: Sequence[Outcome]) -> None:
            with suppress(JqdError):
                over = [outcome for outcome in outcomes if outcome.fate in HOW]
                found = await self.store.list_links([outcome.job_id for outcome in over], CHILDREN)
                for outcome, linked in zip(over, found, strict=True):
                    for child in linked.listed if linked else ():
                        home = stores[partition_of(child, len(stores))]
                        note = ParentNote(child, outcome.job_id, HOW[outcome.fate])
                        await self.flows._go_on(await home.note_parents([note]))
            await write(outcomes)

        settle._write = tell_and_write
        return settle  # type: ignore[no-any-return]

    return build


def _ask_once(real: Real) -> Real:
    async def ask_again(self: Flows) -> None:
        await trio.lowlevel.checkpoint()

    return ask_again


def _give_up(real: Real) -> Real:
    def unknown(self: Flows, pair: WatchPair, one: Watched, whole: Collection[int]) -> str:
        return GONE

    return unknown


UNRELEASED: dict[str, Mistake] = {
    "told-dropped-first": mistake(
        "kill",
        1,
        "stuck",
        "it is noted that children were told of an end before they are",
        (Flows, "_note_ends", _drop_told_first),
        (faults_module, "POINTS", _as_it_is_dropped),
        awaits=True,
        dense=2,
    ),
    "asked-dropped-first": mistake(
        "kill",
        0,
        "stuck",
        "it is noted that the parents of a child were asked before they are",
        (Flows, "_ask", _drop_asked_first),
        (faults_module, "POINTS", _as_it_is_dropped),
        awaits=True,
        dense=2,
    ),
    "told-before-it-counts": mistake(
        "",
        7,
        "parent",
        "children are told of an end before the journal has it",
        (Partition, "_build_outcomes", _tell_first),
        awaits=True,
    ),
    "asked-no-more": mistake(
        "wipe",
        25,
        "stuck",
        "a partition that lost who waits for its jobs is not asked again",
        (Flows, "_ask_again", _ask_once),
        partitions=2,
        awaits=True,
        dense=2,
    ),
    "given-up-at-once": mistake(
        "backlog",
        11,
        "parent",
        "a parent that is on its way into the store counts as one that is gone",
        (Flows, "_unknown", _give_up),
        awaits=True,
    ),
    "one-end-is-all": mistake(
        "",
        4,
        "parent",
        "a child goes on when one of its parents has ended",
        in_scripts("return all and (ended or '0') == all and 1 or 0,", "return ended and 1 or 0,"),
        awaits=True,
    ),
    "early-end-unseen": mistake(
        "",
        0,
        "stuck",
        "a parent that ended before it was asked counts as one that has not",
        in_scripts("return is_over and how or '', stage", "return '', stage"),
        awaits=True,
    ),
    "failure-passes": mistake(
        "",
        1,
        "ill",
        "a parent that failed counts as one that succeeded",
        in_scripts("if not ENDS_WELL[how] then", "if false then"),
        awaits=True,
    ),
    "deleted-untold": mistake(
        "purge,away",
        30,
        "stuck",
        "a job that ended is deleted before its children were told",
        in_scripts("if is_kept or owes[id] then", "if is_kept then"),
        partitions=2,
        awaits=True,
        dense=2,
    ),
    "cancel-unnoted": mistake(
        "",
        0,
        "stuck",
        "nobody is told that a job was cancelled",
        unnoted_in("apply_cancels"),
        awaits=True,
    ),
    "expiry-unnoted": mistake(
        "",
        13,
        "stuck",
        "nobody is told that a job expired",
        unnoted_in("get_waiting_jobs", "promote", "apply_changes", "apply_jobs"),
        awaits=True,
        expires=True,
        dense=3,
    ),
}
"""By name."""
