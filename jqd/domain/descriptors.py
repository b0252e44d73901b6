"""How the process's open files (RLIMIT_NOFILE, `ulimit -n`) are divided. Pure.

    reserve    first of all: journal, store, log, the listening socket, and what a library opens for a moment.
               Nobody counts it; it is there because the two others stay within their parts
    workers    connections to workers, over all partitions (`runner/transport/pool.py`): half of the rest, where
               `runner.connections_max` asks for no less. A job for which none becomes free goes back untried
    incoming   connections from pushers and workers (`http`): all that is left, at most INCOMING_MAX. Who comes beyond
               them waits in the kernel's backlog or is told to come again

The limit is read once, at the start. Raise it (`ulimit -n 65536`, `LimitNOFILE=` of systemd) where more is needed.
"""

import resource
from typing import NamedTuple

from jqd.domain.errors import ConfigError

RESERVE = 64  # journal, its readers and its spare one, log, job log, listener, pipes, resolver, a child's three streams
RESERVE_PARTITION = 32  # the store's clients of one partition with all their connections, and its lanes' segments
PART_MIN = 32  # connections of either kind without which a daemon is not worth starting
INCOMING_MAX = 16_384  # from outside: beyond it one loop on one core answers nobody in time


class Shares(NamedTuple):
    reserve: int
    workers: int
    incoming: int


def share_out(limit: int, *, partitions: int = 1) -> Shares:
    """Divide `limit` descriptors. Raises ConfigError where too few are left for either part."""
    reserve = RESERVE + RESERVE_PARTITION * partitions
    rest = limit - reserve
    if rest < 2 * PART_MIN:
        raise ConfigError(
            f"this process may open {limit} files; {partitions} partition(s) of the store take {reserve} of them, and"
            f" {2 * PART_MIN} connections are the least. Raise the limit (ulimit -n, LimitNOFILE=) to"
            f" {reserve + 2 * PART_MIN} or more"
        )
    workers = rest // 2
    return Shares(reserve, workers, min(rest - workers, INCOMING_MAX))


def open_files_max() -> int:
    """Return how many descriptors this process may have open; a large number where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
