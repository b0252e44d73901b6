"""How many jobs of one jobtype are ended in a second while there are any: by a worker, or by this process. Pure."""

from dataclasses import dataclass

SAMPLE_S = 0.05  # of busy time make one measurement of speed: shorter is noise, longer finds the top late


@dataclass(slots=True)
class Speed:
    """Measures how many jobs of one jobtype a worker ends in a second while it has any."""

    in_flight: int = 0
    rate: float = 0.0
    """Jobs a second, measured; 0 until known."""
    busy_since_s: float = 0.0
    busy_s: float = 0.0
    ended: int = 0

    def take(self, count: int, now_s: float) -> None:
        if not self.in_flight:
            self.busy_since_s = now_s
        self.in_flight += count

    def give(self, count: int, now_s: float, *, ended: bool) -> None:
        """Take `count` jobs out of the measurement. Only busy time counts: a worker without such jobs is not slow."""
        self.in_flight -= count
        self.ended += count if ended else 0
        self.busy_s += now_s - self.busy_since_s
        self.busy_since_s = now_s
        if self.busy_s < SAMPLE_S:
            return
        sample = self.ended / self.busy_s
        # The longer the sample, the less the earlier rate counts.
        weight = self.busy_s / (self.busy_s + SAMPLE_S) if self.rate else 1.0
        self.rate += (sample - self.rate) * weight
        self.busy_s, self.ended = 0.0, 0
