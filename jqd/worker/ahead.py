"""Computes how many jobs a worker that pulls asks daemons for. If its jobs are quick, it asks for more than can begin
at once, so that the next ones are there when a slot becomes free.

    as many as slots are free   while a recent jobtype is slow or unknown, or had a job on its last attempt
    more                        if jobs are quick: as many as end in WINDOW_S

So a job waits in the worker for less than a tenth of a second. More urgent jobs that come in this time are hardly
delayed, and few jobs are handed back when the worker stops. If the worker dies, all jobs that it holds lose an attempt.
So a job on its last attempt is handed back if it cannot begin at once.
"""

from jqd.domain.clock import Speed

WINDOW_S = 0.1  # hold the jobs that end in this time: enough to hide a round trip, few to lose
MEMORY_S = 10.0  # how long a jobtype counts after its last job, and a job on its last attempt prevents asking ahead
AHEAD_JOBS_MAX = 400  # four leases of a hundred: beyond that the cost per job no longer falls
QUANTA = 4  # ask for a quarter of the window at least: a request for each ended job would cost too much


class Ahead:
    """Measures how quickly jobs end, and computes how many jobs the worker asks daemons for."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}
        self._none_until_s = float("-inf")

    def arrived(self, jobtype: str, jobs: int, now_s: float) -> None:
        self._speeds.setdefault(jobtype, Speed()).add_jobs(jobs, now_s)

    def ended(self, jobtype: str, now_s: float, *, ran: bool = True) -> None:
        """Record that a job of this type has ended. `ran`: False if it was handed back or cancelled: then it does not
        count for the speed of the jobtype."""
        self._speeds[jobtype].remove_jobs(1, now_s, ended=ran)

    def stop_asking_ahead(self, now_s: float) -> None:
        """Let the worker ask only for jobs that can begin at once, for MEMORY_S. To be called when a job came on its
        last attempt, because such a job must not wait in the worker."""
        self._none_until_s = now_s + MEMORY_S

    def window(self, slots: int, now_s: float) -> int:
        """Return how many jobs this worker may hold at once, running and waiting: `slots` or more. `slots`: how many
        run at once."""
        for jobtype in [
            name
            for name, speed in self._speeds.items()
            if not speed.in_flight and now_s - speed.busy_since_s > MEMORY_S
        ]:
            del self._speeds[jobtype]
        if now_s < self._none_until_s or not self._speeds:
            return slots
        slowest = min(speed.rate for speed in self._speeds.values())
        return max(slots, min(slots + AHEAD_JOBS_MAX, int(slowest * WINDOW_S)))

    def wanted(self, slots: int, here: int, now_s: float) -> int:
        """Return how many jobs to ask for now; 0 also if so few are missing that a request does not pay. `slots`: how
        many jobs run at once. `here`: jobs that this worker holds or has asked for already."""
        window = self.window(slots, now_s)
        wanted = window - here
        return wanted if here < slots or wanted * QUANTA >= window else 0
