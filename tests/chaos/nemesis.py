"""What is done to whom, and when: all of it from one seed."""

import random
from dataclasses import dataclass

LEASE_S = 2.0
KINDS = (
    ("kill", "daemon"),
    ("kill", "worker"),
    ("kill", "store"),
    ("stop", "daemon"),
    ("stop", "worker"),
    ("stop", "store"),
    ("wipe", "store"),
    ("drop", "edge"),
    ("delay", "edge"),
    ("hole", "edge"),
    ("cut", "edge"),
)
# How long each lasts, in leases: below, at and well above what makes others take over.
SPANS = {"kill": (0.1, 0.6, 1.5), "stop": (0.5, 1.1, 3.0), "drop": (1.0, 2.0)}
SPANS |= {"delay": (0.5, 1.0), "hole": (0.5, 1.1, 3.0), "cut": (0.5, 1.1, 2.0)}
STORE_SPANS = (0.1, 0.5, 1.1)  # everybody waits for the store: long is only more waiting
SERVER_SPANS = (0.5, 1.1, 3.0)  # of one of several, while the jobs of the others go on
QUIET_S = (1.0, 2.0)
TWICE = 0.35  # of the strikes come with another one
WIPE = "wipe"  # FLUSHALL of a server that goes on
WIPE_S = LEASE_S  # in which all notice it
TOLD_S = 0.05  # and in which they tell the server again what it forgot, for each second of the traffic until then: of
# what a daemon ran that is cut off meanwhile nobody else can tell, and it runs again
CALM_S = 4.0  # before a wipe, with nothing wrong: what a daemon took that is away meanwhile nobody else can tell


@dataclass(frozen=True)
class Strike:
    """One fault."""

    at_s: float
    for_s: float
    kind: str
    target: str


def server_name(part: str, server: int) -> str:
    """How a server, or a daemon's way to it, is called: the first as if it were the only one."""
    return f"{part}-{server}" if server else part


def plan(seed: int, seconds: float, daemons: int, workers: int, servers: int = 1) -> list[Strike]:
    """Faults with quiet between, for `seconds`. Every kind comes before one comes again."""
    source = random.Random(seed)
    sizes = {"daemon": daemons, "worker": workers, "edge": daemons}
    strikes: list[Strike] = []
    deck: list[tuple[str, str]] = []
    at_s = source.uniform(*QUIET_S)
    while at_s < seconds:
        longest_s = 0.0
        for _ in range(2 if source.random() < TWICE else 1):
            if not deck:
                deck = source.sample(KINDS, len(KINDS))
            kind, part = deck.pop()
            if kind == WIPE:
                at_s = max([at_s, *(s.at_s + s.for_s for s in strikes)]) + CALM_S
                longest_s = WIPE_S + TOLD_S * at_s
                strikes.append(Strike(at_s, longest_s, kind, server_name(part, source.randrange(servers))))
                break
            spans = SPANS[kind] if part != "store" else STORE_SPANS if servers == 1 else SERVER_SPANS
            for_s = LEASE_S * source.choice(spans) * source.uniform(0.9, 1.1)
            target = part if part == "store" else f"{part}-{source.randrange(sizes[part])}"
            if servers > 1 and part in ("store", "edge"):
                target = server_name(target, source.randrange(servers))
            if any(s.target == target and s.at_s + s.for_s > at_s for s in strikes):
                continue  # struck already
            strikes.append(Strike(at_s, for_s, kind, target))
            longest_s = max(longest_s, for_s)
            at_s += source.uniform(0.0, 0.5)
        at_s += longest_s + source.uniform(*QUIET_S)
    return strikes
