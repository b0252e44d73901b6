"""Counts the words of 10,000 texts, one job each, and adds them up: a group, and a job that waits for all of it.

jqd dev                                            # or any daemon
jqd worker examples.mapreduce                      # as many as you like, on any machine
python -m examples.mapreduce --texts 10000
"""

import argparse
import time
from collections import Counter

from jqd import App, group

app = App()
WORDS = ("to", "be", "or", "not")


@app.job(keep_result=True)
def count(text: str) -> dict[str, int]:
    """Map: the words of one text."""
    return Counter(text.split())


@app.job(keep_result=True, timeout="1m")
def add(counts: list[dict[str, int]]) -> dict[str, int]:
    """Reduce: of all texts."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def main() -> int:
    """Print how often each word stands in all texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000, help="at most 10,000, as a group may have members")
    texts = parser.parse_args().texts
    began = time.perf_counter()
    ref = group(*(count.s(" ".join(WORDS[: n % 4 + 1])) for n in range(texts - 1))).then(add.s()).push()
    told = ref.result("2m")
    print(f"{told} in {time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
