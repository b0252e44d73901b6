"""Workers that refuse and say for how long they want nothing: a job that went back for that must not come before.

refused   that life heard it, with the time in which it wants nothing
back      the store took the job back from that life, untried: it was told so before
pressed   any life sends the job to the same worker within that time

What was on its way to a worker as it refused is not judged: a job that went back is with nobody. A store that forgot
has forgotten views, too.
"""

from collections.abc import Collection

import trio

from jqd.domain.jobid import partition_of
from tests.simulation.notes import Notes

PAUSE_S = 2.0  # what workers here ask for


class Pressed:
    """All that workers said."""

    def __init__(self, history: Notes) -> None:
        self._history = history
        self._said: dict[tuple[str, str], tuple[str, float]] = {}
        """Life and job → the worker that refused it there, and until when."""
        self._back: dict[str, tuple[str, float, float]] = {}
        """Job → the worker, when it went back, and until when."""

    def refused(self, life: str, host: str, job_ids: Collection[str]) -> None:
        """A worker wants none of these now."""
        until_s = trio.current_time() + PAUSE_S
        self._said |= {(life, job_id): (host, until_s) for job_id in job_ids}

    def released(self, life: str, job_ids: Collection[str]) -> None:
        """The store took these back."""
        for job_id in job_ids:
            if (said := self._said.pop((life, job_id), None)) is not None:
                host, until_s = said
                self._back[job_id] = host, trio.current_time(), until_s

    def asked(self, life: str, host: str, job_ids: Collection[str]) -> None:
        """That life sends these to a worker."""
        now_s, history = trio.current_time(), self._history
        for job_id in job_ids:
            where, back_s, until_s = self._back.get(job_id, ("", 0.0, 0.0))
            losses = history.losses_of(partition_of(job_id, history.partitions))
            if where == host and now_s < until_s and not any(loss.at_s >= back_s - PAUSE_S for loss in losses):
                history.wrong(f"pressed: {job_id} came to {host} from {life}, {until_s - now_s:.3f} s too early")
