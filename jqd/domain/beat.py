"""When loops that look now and then wake: at common moments, multiples of their periods on trio's clock.

An idle daemon's cost is the number of its moments of waking, and little for what it does in each. Daemons on one
machine wake at moments of their own, as the zero of trio's clock is drawn for each process.
"""

import math

import trio

SLACK = 1e-6  # of a period: a moment that was reached, as exactly as floats tell, is not the next one


def next_beat_s(period_s: float, least_s: float = 0.0) -> float:
    """Return the seconds until the next multiple of `period_s` that is at least `least_s` away, and not now."""
    now_s = trio.current_time()
    return (math.floor((now_s + least_s) / period_s + SLACK) + 1) * period_s - now_s


async def rest(period_s: float) -> None:
    """Sleep until the next multiple of `period_s`: no longer than that."""
    await trio.sleep(next_beat_s(period_s))
