"""Divides the files that the process may open (RLIMIT_NOFILE, `ulimit -n`).

    reserve    for journal, store, log, the listening socket, and files that a library opens for a moment. It is not
               counted: it stays free because `workers` and `incoming` keep to their shares
    workers    connections to workers, of all partitions (`runner/transport/pool.py`): half of what remains, unless
               `runner.connections_max` is less. A job for which no connection becomes free is given back
    incoming   connections from clients and workers (`http`): the other half, at most INCOMING_MAX. Further ones wait in
               the kernel's backlog, or are asked to try again

The limit is read once, at the start. If more files are needed, raise it (`ulimit -n 65536`, `LimitNOFILE=` of systemd).
"""

import resource
from typing import NamedTuple

from jqd.domain.errors import ConfigError

RESERVE = 64  # journal, its readers and spare segment, log, job log, listener, pipes, resolver, a child's three streams
RESERVE_PARTITION = 32  # for a partition: its store clients' connections, and the segments that its lanes read
PART_MIN = 32  # the fewest connections of either kind: with fewer a daemon does not start
INCOMING_MAX = 16_384  # more than that one loop on one core cannot answer in time


class Shares(NamedTuple):
    reserve: int
    workers: int
    incoming: int


def share_out(limit: int, *, partitions: int = 1) -> Shares:
    """Divide `limit` file descriptors into the shares `reserve`, `workers` and `incoming`. `partitions`: of the store;
    each adds some to the reserve. Raises ConfigError if `limit` is too low."""
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
    """Return how many files this process may open; a large number if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
