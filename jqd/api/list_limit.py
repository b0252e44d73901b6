"""How many lists are made at once: each asks the store again and again, and keeps what it has found so far."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from jqd.api.problems import Problem

# Of one tenant. The store tells of 100 jobs in 1 to 2 ms, and all calls stand in one line: others wait some 30 ms more.
TENANT_LISTS_MAX = 16
ADDRESS_LISTS_MAX = 32  # of one address: there may be a proxy before several tenants
LISTS_MAX = 64  # of a daemon: a page of 1,000 jobs has 1 to 2 MiB until it is sent
AGAIN_S = 1  # one that is nothing but slow is over by then
ALL = ""


class ListLimit:
    """Those under way, by whose they are."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, owner: str, address: str) -> Iterator[None]:
        """For as long as one is made. `owner`: a tenant; where none is known, the address. Raises Problem 429."""
        bounds = {owner: TENANT_LISTS_MAX, address: ADDRESS_LISTS_MAX, ALL: LISTS_MAX}
        for name, most in bounds.items():
            if self._of[name] >= most:
                whose = f" for {name}" if name else ""
                detail = f"{most} lists are being made{whose} already; wait for their answers, or ask again"
                raise Problem(429, detail, retry_after_s=AGAIN_S)
        self._of.update(bounds.keys())
        try:
            yield
        finally:
            self._of.subtract(bounds.keys())
            self._of += Counter()  # forgets who has none
