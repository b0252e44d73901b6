"""How many jobs a worker that pulls asks for beyond those that it can begin at once, so that quick ones wait for no
round trip. Pure.

    slots   while any jobtype of the last seconds is slow or unknown, or has jobs whose only attempt this is
    more    of quick jobs: what ends in a tenth of a second, as daemons send ahead to a worker with a port

Little waits here, then: less than a tenth of a second before what is more urgent, and untried, when the worker stops.
When it dies, an attempt counts for all that it holds. So a job that has no other goes back at once if it cannot begin.
"""

from jqd.domain.clock import Speed

WINDOW_S = 0.1  # of the measured speed may be here: enough to hide a round trip, little to lose with it
MEMORY_S = 10.0  # a jobtype counts so long after its last job; a lease that had last attempts as well
AHEAD_JOBS_MAX = 400  # four leases of a hundred: past that the cost of a job no longer falls
QUANTA = 4  # what goes ahead is asked for in quarters: a request for each job that ends would cost more than it brings


class Ahead:
    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}
        self._none_until_s = float("-inf")

    def arrived(self, jobtype: str, jobs: int, now_s: float) -> None:
        self._speeds.setdefault(jobtype, Speed()).take(jobs, now_s)

    def ended(self, jobtype: str, now_s: float, *, ran: bool = True) -> None:
        """Note the end of a job. `ran`: it was neither handed back nor cancelled, so its time shows its speed."""
        self._speeds[jobtype].give(1, now_s, ended=ran)

    def rest(self, now_s: float) -> None:
        """Ask for no jobs ahead for a while: one came that must not wait here."""
        self._none_until_s = now_s + MEMORY_S

    def window(self, slots: int, now_s: float) -> int:
        """Return how many jobs may be here, those that run included."""
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
        """Return how many jobs to ask for now. `here`: those that run, wait or are on their way."""
        wanted = (window := self.window(slots, now_s)) - here
        return wanted if here < slots or wanted * QUANTA >= window else 0
