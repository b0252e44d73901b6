"""Mistakes about jobs that follow others, planted as those of `bugs.py`."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import trio
from msgspec.structs import replace

from jqd.chaining import follow as following_module
from jqd.chaining.outbox import Outbox
from jqd.domain import outcome_followers as outcome_followers_module
from jqd.domain.charge import FREE, Charge
from jqd.domain.errors import JqdError
from jqd.domain.job import Job, Outcome
from jqd.domain.jobid import made_id
from jqd.domain.outcome_followers import has_jobs
from jqd.domain.record import Lane
from jqd.loops.outcomes import OutcomesLoop
from jqd.loops.retention import retention as retention_module
from jqd.partition import Partition
from tests.simulation import faults as faults_module
from tests.simulation.mistake import Mistake, Real, mistake


def _drop_first(real: Real) -> Real:
    async def empty(self: Outbox, rang: bool) -> bool:
        push = self._push

        async def drop_and_push(entries: Sequence[bytes], **how: Any) -> Any:
            await self._store.drop_outbox(entries)
            return await push(entries, **how)

        self._push = drop_and_push
        try:
            return bool(await real(self, rang))
        finally:
            self._push = push

    return empty


def _as_it_is_dropped(real: Real) -> tuple[str, ...]:
    """No mistake: kills only where this one shows."""
    return ("after drop_outbox",)


def _push_first(real: Real) -> Real:
    def build_settle(self: Partition) -> OutcomesLoop:
        settle: Any = real(self)
        write = settle._write

        async def push_and_write(outcomes: Sequence[Outcome]) -> None:
            pushed = [each for each in outcomes if each.follows and not has_jobs(each.follows)]
            entries = [b"%b %b" % (each.job_id.encode(), each.follows) for each in pushed]
            with suppress(JqdError):  # whoever pushes so early has another chance
                await self._shared.push(entries)
            await write(outcomes)

        settle._write = push_and_write
        return settle  # type: ignore[no-any-return]

    return build_settle


def _leave_behind(real: Real) -> Real:
    def carry(lane: Lane, body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
        return iter(()) if lane is Lane.OUTCOMES else real(lane, body, keep, position)

    return carry


_NUMBERS = itertools.count(1)


def _draw_ids(real: Real) -> Real:
    def decode(body: bytes) -> list[Job]:
        return [replace(job, id=made_id(f"{job.name[:26]}.{next(_NUMBERS)}.0")) for job in real(body)]

    return decode


def _pass_by(real: Real) -> Real:
    async def reserve_owed(*_: object) -> Charge:
        await trio.lowlevel.checkpoint()
        return FREE

    return reserve_owed


def _say_nothing(real: Real) -> Real:
    async def owing(*_: object) -> list[Outcome]:
        await trio.lowlevel.checkpoint()
        return []

    return owing


FOLLOWED: dict[str, Mistake] = {
    "outbox-dropped-first": mistake(
        "kill",
        0,
        "unfollowed",
        "what is to follow is taken out of the outbox before it is pushed",
        (Outbox, "_empty", _drop_first),
        (faults_module, "POINTS", _as_it_is_dropped),
        follows=True,
        dense=2,
    ),
    "followed-untold": mistake(
        "kill",
        0,
        "early",
        "what follows a job is pushed before the journal knows that it succeeded",
        (Partition, "_build_outcomes", _push_first),
        follows=True,
    ),
    "followers-left-behind": mistake(
        "trim,wipe,workers,stall",
        15,
        "unfollowed",
        "a journal gives up an outcome that alone has followers that wait",
        (retention_module, "carry", _leave_behind),
        follows=True,
        dense=6,
    ),
    "follower-drawn": mistake(
        "wipe",
        1,
        "twice",
        "a follower gets another id each time that its outcome is read",
        (outcome_followers_module, "decode_jobs", _draw_ids),
        follows=True,
    ),
    "followers-pass-by": mistake(
        "",
        0,
        "over",
        "followers pass by the quota of their tenant",
        (following_module, "reserve_owed", _pass_by),
        follows=True,
        quotas=True,
    ),
    "shelf-unsaid": mistake(
        "trim,wipe",
        14,
        "unfollowed",
        "a journal gives up what alone says the followers that wait for a quota",
        (retention_module, "still_waiting", _say_nothing),
        follows=True,
        quotas=True,
        dense=3,
    ),
}
"""By name."""
