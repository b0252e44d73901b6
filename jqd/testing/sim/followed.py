"""Mistakes about jobs that follow others, planted as those of `bugs.py`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jqd.loops.outbox import Outbox
from jqd.loops.settle import Settle
from jqd.partition import Partition
from jqd.testing.sim import faults as faults_module
from jqd.testing.sim.mistake import Mistake, Real, mistake
from jqd.words.errors import JqdError
from jqd.words.job import Outcome


def _drop_first(real: Real) -> Real:
    async def empty(self: Outbox, age_s: float) -> None:
        push = self._push

        async def drop_and_push(entries: Sequence[bytes], *, shelved: bool = False) -> Any:
            await self._store.drop_outbox(entries)
            return await push(entries, shelved=shelved)

        self._push = drop_and_push
        try:
            await real(self, age_s)
        finally:
            self._push = push

    return empty


def _as_it_is_dropped(real: Real) -> tuple[str, ...]:
    """No mistake: kills only where this one shows."""
    return ("after drop_outbox",)


def _push_first(real: Real) -> Real:
    def build_settle(self: Partition) -> Settle:
        settle: Any = real(self)
        write = settle._write

        async def push_and_write(outcomes: Sequence[Outcome]) -> None:
            entries = [b"%b %b" % (each.job_id.encode(), each.follows) for each in outcomes if each.follows]
            with suppress(JqdError):  # whoever pushes so early has another chance
                await self._shared.push(entries)
            await write(outcomes)

        settle._write = push_and_write
        return settle  # type: ignore[no-any-return]

    return build_settle


FOLLOWED: dict[str, Mistake] = {
    "outbox-dropped-first": mistake(
        "kill",
        0,
        "lost",
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
        (Partition, "_build_settle", _push_first),
        follows=True,
    ),
}
"""By name."""
