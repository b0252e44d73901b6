"""Makes periodic loops wake at the same moments: at multiples of their periods on trio's clock.

An idle daemon costs processor time mainly by how often it wakes. Different daemons on one machine still wake at
different moments, because trio's clock starts at a random value in each process.
"""

import math

import trio

SLACK = 1e-6  # in periods: a float may be a bit below the moment that was just reached, which is not the next one


def next_beat_s(period_s: float, least_s: float = 0.0) -> float:
    """Return the seconds until the next multiple of `period_s` that is at least `least_s` away; always more than 0."""
    now_s = trio.current_time()
    return (math.floor((now_s + least_s) / period_s + SLACK) + 1) * period_s - now_s


async def rest(period_s: float) -> None:
    """Sleep until trio's clock shows the next multiple of `period_s` seconds."""
    await trio.sleep(next_beat_s(period_s))
