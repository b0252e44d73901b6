"""How much one worker may have in flight, and when it gets nothing. Pure: time and randomness are given.

Three limits meet here:

    slots     max_jobs at once, as registered. With `batch` above it, an adaptive window for each jobtype: as many jobs
              as end in a tenth of a second, so that quick jobs travel in large batches and slow ones do not pile up
    AIMD      each back-off halves what may be in flight; each good answer gives a sixteenth of it back
    breaker   closed ──back-off──▶ open (nothing is sent) ──time──▶ one probe of one job ──good answer──▶ closed
                                     ▲──────────────────────── it failed too: wait longer ◀┘

Jobs of several jobtypes share the worker: one job takes 1/window of it, by the window of its type. While any share is
free there is room for at least one job of any type, so quick jobs never keep out more urgent ones.

A back-off by another daemon holds here, too (`worker_health.py`): nothing is sent until its end. Then each daemon
probes with one job.

A probe is a job in flight. It is over when its worker answers or fails, or when the job is taken back. Most frameworks
answer only when the job is done, so while a probe runs another one follows after PROBED_S. A worker that hung (took
jobs and did not answer) gets only one probe at a time.

None of this costs a job an attempt: jobs for which no worker has room wait in the store or go to another worker.
"""

import math
import random
from collections.abc import Collection

from jqd.domain.backoff import Backoff
from jqd.domain.clock import Speed
from jqd.runner.crash_site import Site

WINDOW_S = 0.1  # as many jobs are in flight as end in this time: enough to hide a round trip, few to lose
SPEEDS_MAX = 256  # jobtypes used last, whose speed is remembered; others begin with `max_jobs` again
RECOVERY_STEPS = 16  # number of good answers after which a halved window is full again
SHARE_MIN = 1 / 1024  # the AIMD limit falls no further; one job always has room
QUANTA = 4  # a window wider than max_jobs is refilled in quarters
RETRY_AFTER_S_MIN = 0.1  # a shorter pause counts as none: the worker would get jobs again at once, for ever
LOG_EVERY_S = 60.0  # a complaint or back-off is logged again after this: thousands of jobs may meet it
PROBED_S = 10.0  # by then a probe is connected (5 s), and an overloaded worker has refused it
SAME_CLOCK_S = 5.0  # dates by one clock differ by no more: a store's clock is known to a fraction of it
NOT_TAKEN_S = 60.0  # a jobtype that a worker does not know is offered to it again after this: it may be newer by then
_ROUNDING = 1e-9  # tolerance of sums of floats: sixteen sixteenths are one


class CircuitBreaker:
    def __init__(
        self, *, max_jobs: int, batch: int | None, backoff: Backoff, retry_after_max_s: float, source: random.Random
    ) -> None:
        self.in_flight = 0
        self.failures = 0
        self.open_until_s = float("-inf")
        """Until when this daemon sends the worker nothing because of its own back-off, by the monotonic clock."""
        self.others_until_s = float("-inf")
        """Until when nothing is sent because another daemon backed the worker off; -inf: none did. Afterwards one job
        probes it."""
        self.complaint = ""
        """A problem at this worker that somebody has to fix; "": none since its last good answer."""
        self.unreached = False
        self.why = ""
        """How the request ended for which the worker was backed off, for people."""
        self.barred = ""
        """Why this daemon may not connect to the worker, so sends it nothing; "": it may."""
        self.worker: object = None
        """The registration that these numbers, `barred` and the next four attributes were taken from."""
        self.registered_at_ms = 0
        self.endpoint = ""
        self.place = "", ""
        self.url = ""
        self.site: Site | None = None
        """The crash site at the worker's host and port; None until a connection breaks there."""
        self._logged_at_s: dict[str, float] = {}  # what was logged about the worker → when
        self._backoff = backoff
        self._retry_after_max_s = retry_after_max_s
        self._source = source
        self._disproved_s = float("-inf")  # earlier back-offs by other daemons are void: the worker has answered
        # Ids of jobs in flight that were sent as probes → until when they keep others away.
        self._probes: dict[str, float] = {}
        self._lead_ms = math.nan  # of the date that was accepted last, over the monotonic clock; NaN: none was
        self._hung = False  # whether it was backed off because it took jobs and did not answer
        self._share = 1.0  # the share of each window that may be used, by AIMD
        self._backed_off_at_s = float("-inf")
        self._speeds: dict[str, Speed] = {}  # by jobtype, the one used last at the end
        self._used: tuple[float, bool] | None = None  # the result of `_usage`; None: to be computed again
        self._not_taken: dict[str, float] = {}  # jobtype that the worker does not know → until when it is not offered
        self._max_jobs = 0  # set by `resize`
        self._batch: int | None = None
        self.resize(max_jobs, batch)

    def resize(self, max_jobs: int, batch: int | None) -> None:
        if (max_jobs, batch) == (self._max_jobs, self._batch):
            return
        self._max_jobs = max_jobs
        self._batch = batch
        self.post_jobs_max = max_jobs if batch is None else batch
        self._used = None

    @property
    def rate(self) -> float:
        return max((speed.rate for speed in self._speeds.values()), default=0.0)

    def window(self, jobtype: str | None = None) -> int:
        """Return how many jobs of a type may be in flight at the worker if it had no others, at least 1. None: jobs of
        the quickest type."""
        rate = self.rate if jobtype is None else self._rate_of(jobtype)
        return max(1, int(self._full_window(rate) * self._share + _ROUNDING))

    def free(self, jobtype: str, now_s: float) -> int:
        """Return how many jobs of that type may be sent now: 0 without `has_room`, else at least 1."""
        if not self.has_room(now_s):
            return 0
        full = self._full_window(self._rate_of(jobtype))
        free = max(1, int((self._share - self._usage()[0]) * full + _ROUNDING))
        # A probe of one job tells whether the worker is well again.
        return free if self.is_closed else 1

    def has_room(self, now_s: float) -> bool:
        """Return whether a job of any type may be sent now. False while the worker is probed, or reserved for a
        suspected job."""
        if self.is_open(now_s) or (self._probes and now_s < max(self._probes.values())):
            return False
        if self._is_kept(now_s):
            return False
        used, wide = self._usage()
        if used + _ROUNDING >= self._share:
            return False
        # A wide window means quick jobs: claiming anew for each that ends would cost more than it gains.
        return not wide or self.in_flight < self._max_jobs or used <= self._share * (1 - 1 / QUANTA) + _ROUNDING

    @property
    def is_closed(self) -> bool:
        """Whether the worker has answered well since its last back-off by this or another daemon."""
        return not self.failures and self.others_until_s == float("-inf")

    def is_well(self, now_s: float) -> bool:
        """Return whether only its slots limit the worker: no back-off or probe is under way, and it is not reserved for
        a job suspected of crashes."""
        return self.is_closed and not self._is_kept(now_s)

    def is_open(self, now_s: float) -> bool:
        """Return whether the worker is backed off by any daemon. Then nothing is sent to it, not even jobs already
        claimed for it."""
        return now_s < max(self.open_until_s, self.others_until_s)

    def is_shut(self, now_s: float) -> bool:
        """Return whether the worker is backed off by this daemon itself. Back-offs by other daemons do not count."""
        return now_s < self.open_until_s

    def take(self, jobtype: str, job_ids: Collection[str], now_s: float) -> None:
        speed = self._speeds.pop(jobtype, None) or self._new_speed()
        self._speeds[jobtype] = speed
        speed.add_jobs(len(job_ids), now_s)
        self.in_flight += len(job_ids)
        self._used = None
        if self.failures or self.others_until_s > float("-inf"):  # as `is_closed`, without a call for each request
            self._probes.update(dict.fromkeys(job_ids, math.inf if self._hung else now_s + PROBED_S))

    def give(self, jobtype: str, job_ids: Collection[str], now_s: float, *, ended: bool) -> None:
        """Subtract jobs that have left the worker from the number in flight. `ended`: whether it ran them to their end,
        so that they count for its speed."""
        if not job_ids:
            return  # `Speed.remove_jobs` would count the time since its last call as busy
        speed = self._speeds.get(jobtype) or Speed()
        assert speed.in_flight >= len(job_ids), f"slots of jobs {job_ids} are given back, but not so many were taken"
        speed.remove_jobs(len(job_ids), now_s, ended=ended)
        self.in_flight -= len(job_ids)
        self._used = None
        for job_id in job_ids:
            self._probes.pop(job_id, None)

    def answered(self, sent_at_s: float) -> None:
        """Close the breaker: a request got a good answer. Ignored if the request was sent before the last back-off
        ended."""
        if sent_at_s < max(self._backed_off_at_s, self.open_until_s):
            return
        self.complaint = ""
        self.failures = 0
        self.unreached = self._hung = False
        if sent_at_s >= self.others_until_s > float("-inf"):
            self._forget_others()
        self._probes.clear()
        self._share = min(1.0, self._share + max(1 / self._max_jobs, 1 / RECOVERY_STEPS))

    def accepted(self, date_ms: int, at_s: float) -> None:
        """Note that the worker accepted a request signed with this date. `at_s`: the same moment by the monotonic
        clock."""
        self._lead_ms = date_ms - at_s * 1000

    def accepts(self, date_ms: int, at_s: float) -> bool:
        """Return whether the worker has accepted a request with a date from the clock that gave `date_ms`. False if
        somebody has set that clock since. `at_s`: the moment of `date_ms` by the monotonic clock."""
        return abs(date_ms - at_s * 1000 - self._lead_ms) < SAME_CLOCK_S * 1000

    def back_off(
        self, sent_at_s: float, now_s: float, retry_after_s: float | None = None, *, why: str = "", hung: bool = False
    ) -> bool:
        """Stop sending to a worker that is overloaded or unreachable, for a while. Returns False if the request was
        sent before the last back-off began: then its failure belongs to that back-off, and does not lengthen it.

        `retry_after_s`: the pause that the worker asked for, which always counts, bounded; None: exponential, by
        failures. `why`: for logs. `hung`: the worker took jobs and did not answer."""
        self.why = why
        asked_s = self._asked(retry_after_s)
        if asked_s is not None:
            # Also for a request of before the last back-off: the worker itself asked for this pause.
            self.open_until_s = max(self.open_until_s, now_s + asked_s)
        self._probes.clear()
        if sent_at_s < self._backed_off_at_s:
            return False
        self._share = max(SHARE_MIN, self._share / 2)
        self.failures += 1
        self.unreached, self._hung = False, hung
        self._backed_off_at_s = now_s
        if asked_s is None:
            self.open_until_s = max(self.open_until_s, now_s + self._backoff.delay_s(self.failures, self._source))
        return True

    def complain(self, why: str, now_s: float) -> bool:
        """Note a problem that somebody has to fix at the worker. Returns whether to log it: the first time, then once a
        minute."""
        self.complaint = why
        return self.is_to_log("complaint", now_s)

    def is_to_log(self, what: str, now_s: float) -> bool:
        """Return whether to log something about this worker: the first time, then once a minute."""
        if now_s - self._logged_at_s.get(what, -math.inf) < LOG_EVERY_S:
            return False
        self._logged_at_s[what] = now_s
        return True

    def unreachable(self, sent_at_s: float, now_s: float, why: str = "") -> None:
        self.back_off(sent_at_s, now_s, why=why)
        self.unreached = True

    def begin(self, now_s: float) -> None:
        """Forget failures, back-offs and complaints, because the worker registered anew or at another address."""
        self.complaint = ""
        self.failures = 0
        self.unreached = self._hung = False
        self.open_until_s = float("-inf")
        self._forget_others()
        self._backed_off_at_s = now_s  # answers to requests sent before say nothing about the present worker
        self._lead_ms = math.nan
        self._share = 1.0
        self._probes.clear()
        self._not_taken.clear()

    def resume(self, until_s: float, why: str) -> None:
        """Continue a back-off that began before this daemon restarted."""
        self.failures, self.why = self.failures or 1, why
        self.open_until_s = max(self.open_until_s, until_s)

    def pause(self, until_s: float) -> None:
        """Note until when another daemon has backed this worker off; -inf: none has."""
        self.others_until_s = until_s if until_s > self._disproved_s else float("-inf")

    def _forget_others(self) -> None:
        self._disproved_s = max(self._disproved_s, self.others_until_s)
        self.others_until_s = float("-inf")

    def crowded(self, sent_at_s: float, now_s: float, retry_after_s: float | None = None) -> None:
        """Shrink the window (how much the worker may have in flight) to the jobs in flight, because the worker handed a
        job back for lack of room.

        A worker that has nothing in flight, or asks for a pause (`retry_after_s`), is backed off instead. `sent_at_s`:
        when the request with the job was sent.
        """
        if self.in_flight and self._asked(retry_after_s) is None:
            self._share = min(self._share, max(SHARE_MIN, self._usage()[0]))
        else:
            self.back_off(sent_at_s, now_s, retry_after_s)

    def _is_kept(self, now_s: float) -> bool:
        return self.site is not None and self.site.is_kept(self.url, now_s)

    def _asked(self, retry_after_s: float | None) -> float | None:
        """Return the pause that a worker asked for, bounded; None: it asked for none, or for one too short to count."""
        if retry_after_s is None or not retry_after_s >= RETRY_AFTER_S_MIN:
            return None
        return min(retry_after_s, self._retry_after_max_s)

    def not_taken(self, jobtype: str, now_s: float) -> None:
        self._not_taken = {name: until_s for name, until_s in self._not_taken.items() if until_s > now_s}
        self._not_taken[jobtype] = now_s + NOT_TAKEN_S

    def takes(self, jobtype: str, now_s: float) -> bool:
        """Return whether the worker may get this jobtype. False for a while after it answered that it does not know the
        type."""
        return self._not_taken.get(jobtype, now_s) <= now_s

    def not_taken_now(self, now_s: float) -> frozenset[str]:
        return frozenset(name for name, until_s in self._not_taken.items() if until_s > now_s)

    def _new_speed(self) -> Speed:
        if len(self._speeds) >= SPEEDS_MAX:
            idle = next((name for name, speed in self._speeds.items() if not speed.in_flight), None)
            if idle is not None:
                del self._speeds[idle]
        return Speed()

    def _rate_of(self, jobtype: str) -> float:
        speed = self._speeds.get(jobtype)
        return speed.rate if speed is not None else 0.0

    def _full_window(self, rate: float) -> int:
        """Return how many jobs of a type may be in flight without AIMD, if they end at this rate (jobs per second):
        `max_jobs`, and up to a batch more of quick jobs."""
        if self._batch is None or self._batch <= self._max_jobs:
            return self._max_jobs
        return max(self._max_jobs, min(self._max_jobs + self._batch, int(rate * WINDOW_S)))

    def _usage(self) -> tuple[float, bool]:
        """Return the share of the worker that its jobs in flight take, and whether one of their jobtypes has a window
        wider than `max_jobs`."""
        if self._used is None:
            used, wide = 0.0, False
            for speed in self._speeds.values():
                if speed.in_flight:
                    full = self._full_window(speed.rate)
                    used += speed.in_flight / full
                    wide = wide or full > self._max_jobs
            self._used = used, wide
        return self._used
