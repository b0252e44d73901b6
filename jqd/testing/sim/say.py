"""Words on workers and handlers, drawn from a seed: who registers, changes, deletes what, at which daemon, and when."""

import random
from dataclasses import dataclass

PUT, DELETE, FAREWELL = "put", "delete", "farewell"
SAYS = (PUT, PUT, PUT, DELETE, FAREWELL)
WORKERS, HANDLERS, SHORT = ("v0", "v1"), ("h0", "h1"), "t0"
SHORT_TTL_S = 3.0


@dataclass(frozen=True, slots=True)
class Say:
    """A word that somebody says."""

    at_s: float
    node: int
    what: str
    name: str
    slots: int
    """By which it is known again: each word has its own."""

    @property
    def key(self) -> tuple[str, str]:
        """The rule it is about."""
        return ("handler" if self.name in HANDLERS else "worker"), self.name


def make_says(source: random.Random, nodes: int, until_s: float, dense: int) -> list[Say]:
    """Some ten of them, on few names; `dense` times as many. Pure."""
    at_s = sorted(source.uniform(0.0, until_s) for _ in range(source.randint(6, 16) * dense))
    names = (*WORKERS, *HANDLERS, SHORT)
    says = [Say(at, source.randrange(nodes), source.choice(SAYS), source.choice(names), slots) for slots, at in
            enumerate(at_s, 1)]  # fmt: skip
    return [say for say in says if say.what == PUT or say.name != SHORT]
