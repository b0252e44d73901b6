"""How many jobs a worker that pulls asks for beyond those that it can begin at once, so that quick ones wait for no
round trip. Pure.

    slots   while any jobtype of the last seconds is slow or unknown, or has jobs whose only attempt this is
    more    of quick jobs: what ends in a tenth of a second, as daemons send ahead to a worker with a port

Little waits here, then: less than a tenth of a second before what is more urgent, and untried, when the worker stops.
When it dies, an attempt counts for all that it holds. So a job that has no other goes back at once if it cannot begin.
"""

WINDOW_S = 0.1  # of the measured speed may be here: enough to hide a round trip, little to lose with it
SAMPLE_S = 0.05  # of time make one measurement: shorter is noise
MEMORY_S = 10.0  # a jobtype counts so long after its last job; a lease that had last attempts as well
AHEAD_JOBS_MAX = 400  # four leases of a hundred: past that the cost of a job no longer falls
QUANTA = 4  # what goes ahead is asked for in quarters: a request for each job that ends would cost more than it brings


class _Speed:
    """Jobs of one jobtype that ended in a second while there were any."""

    __slots__ = ("busy_s", "ended", "in_flight", "rate", "since_s")

    def __init__(self) -> None:
        self.in_flight = self.ended = 0
        self.rate = self.busy_s = self.since_s = 0.0

    def count(self, come: int, gone: int, ended: int, now_s: float) -> None:
        """`ended`: those of `gone` that ran."""
        if self.in_flight:
            self.busy_s += now_s - self.since_s
        self.since_s = now_s
        self.in_flight += come - gone
        self.ended += ended
        if self.busy_s >= SAMPLE_S:
            sample = self.ended / self.busy_s
            # The longer the sample, the less the earlier rate counts.
            weight = self.busy_s / (self.busy_s + SAMPLE_S) if self.rate else 1.0
            self.rate += (sample - self.rate) * weight
            self.busy_s, self.ended = 0.0, 0


class Ahead:
    def __init__(self) -> None:
        self._speeds: dict[str, _Speed] = {}
        self._none_until_s = float("-inf")

    def arrived(self, jobtype: str, jobs: int, now_s: float) -> None:
        self._speeds.setdefault(jobtype, _Speed()).count(jobs, 0, 0, now_s)

    def ended(self, jobtype: str, now_s: float, *, ran: bool = True) -> None:
        """`ran`: it was not handed back or cancelled, which would tell nothing of its speed."""
        self._speeds[jobtype].count(0, 1, int(ran), now_s)

    def rest(self, now_s: float) -> None:
        """Ask for nothing ahead for a while: what came was no job to wait here."""
        self._none_until_s = now_s + MEMORY_S

    def window(self, slots: int, now_s: float) -> int:
        """Return how many jobs may be here, those that run included."""
        for jobtype in [
            name for name, speed in self._speeds.items() if not speed.in_flight and now_s - speed.since_s > MEMORY_S
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
