"""How much one worker may have in hand, and when it gets nothing. Pure: time and randomness are given.

Three limits meet here:

    slots     max_jobs at once, as registered. With `batch` above it, an adaptive window: a tenth of a second of the
              speed measured, so that quick jobs travel in large batches and slow ones do not pile up at one worker
    AIMD      each back-off halves what may be in hand; each good answer gives a sixteenth of it back
    breaker   closed ──back-off──▶ open (nothing is sent) ──time──▶ one probe of one job ──good answer──▶ closed
                                     ▲──────────────────────── it failed too: wait longer ◀┘

A probe is a job in hand. It is over when its worker answers or fails, and at the latest when the job leaves the hand:
a probe that is withdrawn, dropped or cut off on its way does not keep the breaker waiting.

None of this costs a job an attempt: what cannot be placed here waits in the store or goes to another worker.
"""

import random
from collections.abc import Collection

from jqd.words.backoff import Backoff

WINDOW_S = 0.1  # of a worker's measured speed may be in its hand: enough to hide a round trip, little to lose with it
SAMPLE_S = 0.05  # of busy time make one measurement of speed: shorter is noise, longer finds the top late
RECOVERY_STEPS = 16  # good answers after a halving until the full window is open again
QUANTA = 4  # a window wider than max_jobs is refilled in quarters
RETRY_AFTER_S_MIN = 0.1  # a shorter pause counts as none: the worker would get jobs again at once, for ever
NOT_TAKEN_S = 60.0  # a jobtype that a worker does not know is offered to it again after this: it may be newer by then


class Gate:
    """Slots, window and breaker of one worker."""

    def __init__(
        self, *, max_jobs: int, batch: int | None, backoff: Backoff, retry_after_max_s: float, source: random.Random
    ) -> None:
        self.in_hand = 0
        """Jobs given to this worker that have not stopped."""
        self.rate = 0.0
        """Jobs a second it ends while it has any, measured; 0 until known."""
        self.failures = 0
        """Back-offs in a row."""
        self.open_until_s = float("-inf")
        """Nothing is sent before this moment."""
        self._backoff = backoff
        self._retry_after_max_s = retry_after_max_s
        self._source = source
        self._probes: set[str] = set()  # ids of jobs in hand that were given while the breaker was open
        self._cut: float | None = None  # jobs; the AIMD limit while it is below the window
        self._backed_off_at_s = float("-inf")
        self._busy_since_s = 0.0
        self._busy_s = 0.0
        self._ended = 0
        self._not_taken: dict[str, float] = {}
        self.resize(max_jobs, batch)

    def resize(self, max_jobs: int, batch: int | None) -> None:
        """The worker registered these numbers, now or anew."""
        self._max_jobs = max_jobs
        self._batch = batch
        self.post_jobs_max = max_jobs if batch is None else batch

    def window(self) -> int:
        """Jobs that may be in hand at once, at least 1."""
        full = self._full_window()
        return full if self._cut is None else max(1, min(full, int(self._cut)))

    def free(self, now_s: float) -> int:
        """Jobs that may be handed over now. 0 while the breaker is open or a probe is under way."""
        if now_s < self.open_until_s or self._probes:
            return 0
        window = self.window()
        free = max(0, window - self.in_hand)
        if self.failures:
            return min(free, 1)
        # A wide window means quick jobs: a claim for each slot that frees would cost more than the moment it saves.
        return 0 if window > self._max_jobs and free < window // QUANTA else free

    def is_open(self, now_s: float) -> bool:
        """Whether nothing may be sent now, not even jobs that were handed over already."""
        return now_s < self.open_until_s

    def take(self, job_ids: Collection[str], now_s: float) -> None:
        """These jobs are handed over."""
        if not self.in_hand:
            self._busy_since_s = now_s
        self.in_hand += len(job_ids)
        if self.failures:
            self._probes.update(job_ids)

    def give(self, job_id: str, now_s: float, *, ended: bool) -> None:
        """One of them left. `ended`: the worker has run it, so it counts for the worker's speed."""
        assert self.in_hand, f"the slot of job {job_id} is given back, but none was taken"
        self.in_hand -= 1
        self._probes.discard(job_id)
        self._ended += ended
        self._measure(now_s)

    def answered(self, sent_at_s: float) -> None:
        """A request sent at `sent_at_s` got a good answer. It counts only if it was sent after the last back-off."""
        if sent_at_s < self._backed_off_at_s:
            return
        self.failures = 0
        self._probes.clear()
        if self._cut is not None:
            full = self._full_window()
            self._cut += max(1.0, full / RECOVERY_STEPS)
            if self._cut >= full:
                self._cut = None

    def back_off(self, sent_at_s: float, now_s: float, retry_after_s: float | None = None) -> bool:
        """The worker is overloaded or away. False when the request was sent before the last back-off: merged into it.

        `retry_after_s`: what the worker asked for, seconds; bounded. None, or no time: exponential, by failures.
        """
        asked_s = self._asked(retry_after_s)
        if asked_s is not None:
            # Also where it is merged into the last back-off: the worker itself asked for this pause.
            self.open_until_s = max(self.open_until_s, now_s + asked_s)
        self._probes.clear()
        if sent_at_s < self._backed_off_at_s:
            return False
        self._cut = max(1.0, self.window() / 2)
        self.failures += 1
        self._backed_off_at_s = now_s
        if asked_s is None:
            self.open_until_s = max(self.open_until_s, now_s + self._backoff.delay_s(self.failures, self._source))
        return True

    def crowded(self, sent_at_s: float, now_s: float, retry_after_s: float | None = None) -> None:
        """The worker had no room for a job and handed it back: it gets no more than it still has in hand.

        A worker that has nothing in hand and no room, or that asks for a pause, is backed off.
        """
        if self.in_hand and self._asked(retry_after_s) is None:
            self._cut = float(min(self.in_hand, self.window()))
        else:
            self.back_off(sent_at_s, now_s, retry_after_s)

    def _asked(self, retry_after_s: float | None) -> float | None:
        """The pause a worker asked for. None for no pause: also for a date that has passed by our clock."""
        if retry_after_s is None or not retry_after_s >= RETRY_AFTER_S_MIN:
            return None
        return min(retry_after_s, self._retry_after_max_s)

    def not_taken(self, jobtype: str, now_s: float) -> None:
        """The worker does not know this jobtype."""
        self._not_taken = {name: until_s for name, until_s in self._not_taken.items() if until_s > now_s}
        self._not_taken[jobtype] = now_s + NOT_TAKEN_S

    def takes(self, jobtype: str, now_s: float) -> bool:
        """False when it said lately that it does not know this jobtype."""
        return self._not_taken.get(jobtype, now_s) <= now_s

    def not_taken_now(self, now_s: float) -> frozenset[str]:
        """All jobtypes that it does not take."""
        return frozenset(name for name, until_s in self._not_taken.items() if until_s > now_s)

    def _full_window(self) -> int:
        if self._batch is None or self._batch <= self._max_jobs:
            return self._max_jobs
        return max(self._max_jobs, min(2 * self._batch, int(self.rate * WINDOW_S)))

    def _measure(self, now_s: float) -> None:
        """Measure the speed of busy time only: a worker without jobs is not slow."""
        self._busy_s += now_s - self._busy_since_s
        self._busy_since_s = now_s
        if self._busy_s < SAMPLE_S:
            return
        sample = self._ended / self._busy_s
        # The longer the sample, the less the earlier rate counts.
        weight = self._busy_s / (self._busy_s + SAMPLE_S) if self.rate else 1.0
        self.rate += (sample - self.rate) * weight
        self._busy_s, self._ended = 0.0, 0
