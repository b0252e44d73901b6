"""What is kept of names is bounded by bytes, whatever strangers call their jobs."""

import tracemalloc

from jqd.domain.job import NAME_LENGTH_MAX
from jqd.domain.jobid import home_of

NAMES = 60_000
KEPT_BYTES_MAX = 16 << 20


def test_the_homes_of_many_long_names_take_little() -> None:
    home_of.cache_clear()
    tracemalloc.start()
    try:
        for number in range(NAMES):
            home_of(f"{number:x}".rjust(NAME_LENGTH_MAX, "\U0001f980"))  # of the widest letters that there are
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        home_of.cache_clear()
    assert kept_bytes < KEPT_BYTES_MAX
