"""`python -m bench.profiled FILE …` is `jqd …`, profiled from SIGUSR2 on: what a start costs is not what jobs cost."""

import cProfile
import signal
import sys

from jqd.__main__ import main

if __name__ == "__main__":
    file = sys.argv.pop(1)
    profile = cProfile.Profile()
    signal.signal(signal.SIGUSR2, lambda number, frame: profile.enable())
    try:
        main()
    finally:
        profile.disable()
        profile.dump_stats(file)
