"""Lets periodic loops wake at common moments: multiples of their periods on trio's clock.

The cost of an idle daemon is how often it wakes, more than what it does then. Daemons on one machine wake at different
moments, as each process has a random zero of trio's clock.
"""

import math

import trio

SLACK = 1e-6  # in periods: a float may be a bit below the moment that was just reached, which is not the next one


def next_beat_s(period_s: float, least_s: float = 0.0) -> float:
    """Return the seconds until the next multiple of `period_s` that is at least `least_s` away; always more than 0."""
    now_s = trio.current_time()
    return (math.floor((now_s + least_s) / period_s + SLACK) + 1) * period_s - now_s


async def rest(period_s: float) -> None:
    """Sleep until the next multiple of `period_s`, so at most `period_s`."""
    await trio.sleep(next_beat_s(period_s))
