"""Leaves claimed jobs to the pull workers that asked for them. A worker reports the end of each job in a later request.

The hand-over of a job is recorded like an outcome: in the journal, on disk, then in the store. The worker's poll is
answered when the store knows of it."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from jqd.domain.job import Held
from jqd.runner.delivery import DeliveryContext
from jqd.runner.in_flight import InFlightJob
from jqd.runner.pulls import Pull

Claim = tuple[str, int]
GIVEN_MAX = 10_000  # jobs that workers hold by themselves and we remember, some 10 MiB
JOB_BYTES_MAX = 1_024  # of argument and followers: a larger job is not remembered, and read from the store at its end


class Given(NamedTuple):
    """A job that this daemon handed over to a pull worker."""

    held: Held
    worker_id: str
    until_s: float
    """The lease lasts at least until then, by the clock since boot. Before that no other daemon can have ended the
    job."""


class LeaseHandover:
    def __init__(self, shared: DeliveryContext) -> None:
        self._shared = shared
        self._coming: dict[Claim, Pull] = {}
        self.given: dict[Claim, Given] = {}
        """Claim → its job, for the latest jobs handed over here that have not ended. A report need not read these from
        the store."""

    def begin(self, pull: Pull, entries: Sequence[InFlightJob]) -> None:
        """Begin to hand claimed jobs over to a worker's poll. If the poll has ended, hand them back instead."""
        shared = self._shared
        if pull.is_over:
            for entry in entries:
                shared.in_flight.release(entry)
            return
        pull.bring([entry.held for entry in entries])
        pull.handed_s = shared.clock.boot_s()
        shared.in_flight.sent(entries, shared.clock.wall_ms())
        for entry in entries:
            self._coming[entry.held.job.id, entry.held.fence] = pull
        pull.silence_s = shared.entrust(entries, pull.worker.id, pull.heartbeat_s)

    def arrived(self, claims: Iterable[Claim], epoch: int, void: Collection[int] | None) -> None:
        """Note that the store knows of hand-overs, and answer each poll whose hand-overs are complete. Claims that are
        not being handed over are only dropped from `given`.

        A claim (id, fence) with a fence below `epoch` is void: this daemon's lease was lost since. `void`: indexes of
        claims that the store refused, because the job has ended or is held elsewhere; None: the store's answer was
        lost, so any may be void."""
        if not (self._coming or self.given):
            return
        is_lost = void is None or not self._shared.trusts()
        for place, claim in enumerate(claims):
            if (pull := self._coming.pop(claim, None)) is None:
                self.given.pop(claim, None)
                continue
            if is_lost or claim[1] < epoch or (void and place in void):
                # Whether we still held the claim is unknown. If we did, the store takes the job back.
                pull.failed(claim[0])
                self._shared.in_flight.release_undelivered([claim])
            elif not pull.arrived(claim[0]):
                self._shared.in_flight.release_undelivered([claim])
            elif _size(held := pull.given[-1]) <= JOB_BYTES_MAX:
                self.given[claim] = Given(held, pull.worker.id, pull.handed_s + pull.silence_s)
                if len(self.given) > GIVEN_MAX:
                    del self.given[next(iter(self.given))]


def _size(held: Held) -> int:
    flow = held.job.flow
    return len(held.job.argument) + (len(flow.then_text) if flow is not None else 0)
