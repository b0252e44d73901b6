"""What the edge may ask of the whole daemon: is it ready, what does it count, has this been applied, who waits.

Readiness is reported in two halves (`interfaces.md` 1): pushes need the journal only, running needs the store too.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import trio

from jqd import __version__
from jqd.clock import Clock
from jqd.joblog import JobLog
from jqd.journal import Journal
from jqd.log import get_logger
from jqd.loops.endings import Endings
from jqd.loops.ingest import Ingest
from jqd.loops.membership import Membership
from jqd.loops.pace import Pace
from jqd.loops.renew import Peer, Renew
from jqd.loops.watch import Watch
from jqd.rates import Rates
from jqd.record import Lane, PushedJob
from jqd.runner import Runner, Workers
from jqd.store import Store


class Control:
    """Answers from what the parts say of themselves; holds nothing but the two switches of shutdown."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: Store,
        runner: Runner,
        workers: Workers,
        membership: Membership,
        renew: Renew,
        rates: Rates,
        lanes: Mapping[Lane, Ingest[Any]],
        watch: Watch,
        paces: Sequence[Pace],
        endings: Endings,
        clock: Clock,
        joblog: JobLog,
    ) -> None:
        self.draining = False
        self._journal = journal
        self._store = store
        self._runner = runner
        self._workers = workers
        self._membership = membership
        self._renew = renew
        self._rates = rates
        self._lanes = lanes
        self._watch = watch
        self._paces = paces
        self._endings = endings
        self._clock = clock
        self._joblog = joblog
        self._log = get_logger("push")
        self._started_at_s = clock.mono_s()

    def live(self) -> bool:
        """The event loop turns, or nobody would ask."""
        return True

    def push_ready(self) -> str | None:
        """None when pushes are taken, else why not."""
        if self.draining:
            return "this daemon is shutting down; push to another or try again in a moment"
        return self._journal.refusing

    def run_ready(self) -> str | None:
        """None when jobs are being run, else why not."""
        if self.draining:
            return "this daemon is shutting down"
        if self._watch.reason is not None:
            return self._watch.reason
        for pace in self._paces:
            if pace.reason is not None:
                return f"the store cannot be used by {pace.loop}: {pace.reason}"
        return self._membership.hold_up()

    def warnings(self) -> list[str]:
        """What is wrong but stops nothing."""
        failing = (self._joblog.failing, self._workers.failing)
        return [*self._journal.stats().damaged, *(reason for reason in failing if reason), *self._watch.accepted]

    def entered(self, job_ids: Sequence[str], jobs: Sequence[PushedJob]) -> None:
        """A batch was acknowledged."""
        self._log.info("push.batch", count=len(jobs))
        if self._joblog.enabled:
            rows = ({"job_id": i, "jobtype": job.name} for i, job in zip(job_ids, jobs, strict=True))
            self._joblog.write("entered", rows)

    def settled(self) -> bool:
        """Whether the store is known to hold all that the daemons' journals know: what it says now will stay so."""
        return self._membership.settled

    async def wait_applied(self, lane: Lane, position: int, timeout_s: float) -> bool:
        """Whether the store has applied `lane` up to `position` within `timeout_s`."""
        with trio.move_on_after(timeout_s):
            await self._lanes[lane].wait_applied(position)
            return True
        return False

    def rate(self, jobtype: str) -> float:
        """Jobs of that type that ended here, a second, over the last minute."""
        return round(self._rates.per_s(jobtype), 3)

    def daemons(self) -> list[Peer]:
        """The daemons of the store, as the last renewal brought them."""
        return self._renew.peers()

    def ended(self, job_id: str) -> AbstractContextManager[trio.Event]:
        """An event set when an ending of this job is applied here."""
        return self._endings.waiting(job_id)

    def stats(self) -> dict[str, object]:
        """Counters of this daemon's own parts, as `GET /v1/stats` shows them."""
        owner = self._membership.owner
        return {
            "daemon": self._membership.sysid,
            "epoch": owner.epoch if owner else None,
            "version": __version__,
            "uptime_s": round(self._clock.mono_s() - self._started_at_s, 3),
            "journal": self._journal.stats(),
            "durability": self._store.durability_rule,
            "held_up": self._membership.hold_up(),
            "lanes": {
                lane.name.lower(): {"applied": ingest.position, "end": self._journal.end}
                for lane, ingest in self._lanes.items()
            },
            "runner": self._runner.stats(),
        }
