"""The long form: `python -m tests.wire --seconds 3600 --seed 7`. Ends with what was sent, or with what broke."""

import argparse
import random
import sys
import time

import trio

from tests.wire.attack import AT_ONCE, Target, send_corpus, send_mutations, targets
from tests.wire.corpus import DAEMON
from tests.wire.leave import leave

ROUNDS = 100  # between looks at what is left behind
TIMES = 20


async def _attack(both: list[Target], seconds: float, source: random.Random) -> int:
    """How many mutated requests were sent."""
    sent = rounds = 0
    end_s = time.monotonic() + seconds
    for target in both:
        await target.begin()
    while time.monotonic() < end_s:
        for target in both:
            await send_corpus(target, TIMES)
            if target.cases is DAEMON:
                await leave(target)
            while True:
                await send_mutations(target, ROUNDS, source)
                rounds += 1
                sent += ROUNDS * AT_ONCE
                await target.rests()
                if rounds % 20 == 0 or time.monotonic() > end_s:
                    break
            if target.cases is DAEMON:
                await target.holds()
    return sent


def main() -> int:
    """Run, and print how to do it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--seed", type=int, default=None, help="of the mutations; any without it")
    told = parser.parse_args()
    seed = random.randrange(1_000_000) if told.seed is None else told.seed
    print(f"again: python -m tests.wire --seconds {told.seconds:g} --seed {seed}", flush=True)  # noqa: T201
    with targets() as both:
        sent = trio.run(_attack, both, told.seconds, random.Random(seed))
    print(f"{sent} mutated requests: the same processes, nothing left behind, {len(both[0].taken)} jobs as told")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
