"""Computes how long to wait before a failed call or job is tried again."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jqd.domain.units import SECONDS_MAX

FACTOR_MAX = 1_000.0  # a larger one would reach the cap at once; to the power of STEPS_MAX it is still a float
STEPS_MAX = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter. The jitter also applies to waits at the cap."""

    first_s: float = 1.0
    """The wait after the first failed attempt.
    Allowed: above 0"""
    factor: float = 2.0
    """Each further wait is so many times longer.
    Allowed: 1 to 1000"""
    cap_s: float = 3600.0
    """The longest wait.
    Allowed: `retry.first_s` or more"""
    for_s: float | None = field(default=None, metadata={"internal": True})  # set from `job.retry_for_s`
    jitter: float = 0.25
    """Each wait is longer or shorter by up to this share.
    Allowed: 0 to below 1"""

    def __post_init__(self) -> None:
        if not (
            self.first_s > 0
            and 1 <= self.factor <= FACTOR_MAX
            and SECONDS_MAX >= self.cap_s >= self.first_s
            and 0 <= self.jitter < 1
        ):
            raise ValueError(
                f"a back-off needs first_s > 0, factor 1 to {FACTOR_MAX:g}, cap_s >= first_s and at most "
                f"{SECONDS_MAX:g}, 0 <= jitter < 1, not first_s = {self.first_s:g}, factor = {self.factor:g}, "
                f"cap_s = {self.cap_s:g}, jitter = {self.jitter:g}"
            )

    def delay_s(self, failures: int, source: random.Random) -> float:
        """Return the seconds to wait after the `failures`-th failure in a row (1 is the first)."""
        if failures < 1:
            raise ValueError(f"a back-off starts at the first failure, not at {failures}")
        # The exponent is limited, as a float overflows.
        steps = min(failures - 1, STEPS_MAX)
        delay_s = min(self.cap_s, self.first_s * self.factor**steps)
        return self._jittered_s(delay_s, source)

    def asked_s(self, asked: float | Sequence[float], failures: int, source: random.Random) -> float:
        """Return the seconds to wait before the next attempt, by a job's own `backoff` option (`asked`), with jitter.

        A number is the first wait, from which further waits grow; it may exceed the cap. A list gives the wait after
        each failure; its last item is used for all later failures. For an empty list, the daemon's own back-off
        applies.
        """
        if isinstance(asked, float | int):
            first = replace(self, first_s=asked, cap_s=max(self.cap_s, asked))
            return first.delay_s(failures, source)
        if not asked:
            return self.delay_s(failures, source)
        return self._jittered_s(asked[min(failures, len(asked)) - 1], source)

    def _jittered_s(self, delay_s: float, source: random.Random) -> float:
        return delay_s * (1 - self.jitter + 2 * self.jitter * source.random())
