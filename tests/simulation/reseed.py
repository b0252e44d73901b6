"""`python -m tests.simulation.reseed [NAME …]`: writes down, for each planted mistake, the seed that finds it today.

After a change of the code it is another one, and the suite looks for it from the old one on each time it runs.
"""

import re
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.simulation.bugs import MISTAKES, hunt
from tests.simulation.test_bugs import RARE

SOURCES = sorted(Path(__file__).parent.glob("*.py"))


def put_down(name: str, seed: int) -> None:
    """In the one place where that mistake is written."""
    begins = re.compile(rf'("{name}": mistake\(\s*"[^"]*",\s*)\d+')
    (path,) = [path for path in SOURCES if begins.search(path.read_text())]
    path.write_text(begins.sub(rf"\g<1>{seed}", path.read_text()))


def main(names: list[str]) -> int:
    """Returns how many are not found any more. As many are looked for at once as there are processors."""
    lost, wanted = 0, names or [name for name in MISTAKES if name not in RARE]
    with ProcessPoolExecutor() as pool:
        hunts = {pool.submit(hunt, name): name for name in wanted}
        for one in as_completed(hunts):
            name, found = hunts[one], one.result()
            if found is None:
                lost += 1
                print(f"{name}: no seed of those tried finds it any more", flush=True)  # noqa: T201 - a command
            elif found[0] != MISTAKES[name].seed:
                put_down(name, found[0])
                print(f"{name}: {MISTAKES[name].seed} → {found[0]}", flush=True)  # noqa: T201
    return lost


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
