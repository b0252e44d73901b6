"""Runs the tests that failed in a run just now once more, alone: `python -m tests.again`, for `make test`, `make slow`.

Ten thousand tests start some thousand daemons, servers and browsers on two cores. Where one of them is late once, the
others must not have run in vain. So up to three may fail once; whoever passes the second time is named as flaky, for
it is a fault of that test, or of the product, and is to be mended. Whoever fails twice has failed.
"""

import json
import subprocess
import sys
from pathlib import Path

FLAKY_MAX = 3  # of a run: more is no chance
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """Return 0 where all of a few failed tests pass now, else 1."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= FLAKY_MAX:
        sys.stderr.write(f"{len(failed)} tests failed; of up to {FLAKY_MAX} each would be tried once more\n")
        return 1
    sys.stderr.write(f"once more, alone: {', '.join(failed)}\n")
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "long or not long", *failed]
    if subprocess.run(pytest, check=False).returncode:
        return 1
    for name in failed:
        sys.stderr.write(f"FLAKY, to be mended: {name} failed once and passed alone\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
