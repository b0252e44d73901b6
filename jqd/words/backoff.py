"""How long to wait before trying again. Pure: the random source comes from the caller."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter that stays jittered at the cap."""

    first_s: float = 1.0  # the wait after the first failure
    factor: float = 2.0  # each further failure waits this much longer
    cap_s: float = 3600.0  # an hour: longer waits look like lost jobs to their owners
    jitter: float = 0.25  # ± this share, so that jobs that failed together do not return together

    def __post_init__(self) -> None:
        if not (self.first_s > 0 and self.factor >= 1 and self.cap_s >= self.first_s and 0 <= self.jitter < 1):
            raise ValueError(
                f"a back-off needs first_s > 0, factor >= 1, cap_s >= first_s, 0 <= jitter < 1; got {self}"
            )

    def delay_s(self, failures: int, source: random.Random) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first)."""
        if failures < 1:
            raise ValueError(f"a back-off starts at the first failure, not at {failures}")
        # The exponent is bounded before it is raised: failures may be any number, floats are not.
        steps = min(failures - 1, 64)
        delay_s = min(self.cap_s, self.first_s * self.factor**steps)
        return delay_s * (1 - self.jitter + 2 * self.jitter * source.random())
