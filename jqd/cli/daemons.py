"""Commands that drain and resume daemons."""

import math
import shlex
import threading

from jqd.cli.common import Common, duration
from jqd.cli.exits import Exit
from jqd.cli.render import show_as
from jqd.client import Client

LOOK_S = 0.5  # between two requests for the number of jobs in flight


def drain(daemon: str = "this", /, *, wait: str = "0", common: Common = Common()) -> int:
    """Stop a daemon from starting jobs until it is resumed, even if it restarts. Pushes are taken, running jobs go on.

    Parameters
    ----------
    daemon
        Name of the daemon, as `jqd daemons` lists it; default: the one that answers this command.
    wait
        Wait up to this time (30s, 5m) until the daemon has no jobs in flight; end with 5 if it still has some.
    """
    looks = math.ceil(duration(wait, "--wait") / LOOK_S)
    with common.client() as client:
        answer = client.drain(daemon)
        for _ in range(looks):
            if answer["in_flight"] == 0:
                break
            threading.Event().wait(LOOK_S)
            answer |= {"in_flight": _in_flight(client, answer["daemon"])}
    left, name, since = answer["in_flight"], answer["daemon"], answer["drained_at"]
    has = "has no job in flight" if left == 0 else f"has {'some jobs' if left is None else left} in flight yet"
    ends = f"`jqd daemons resume {shlex.quote(name)}` ends it"
    show_as(f"{name} is drained since {since}, and {has}; {ends}", answer, common.output)
    return Exit.TIMED_OUT if looks and left != 0 else Exit.DONE


def resume(daemon: str = "this", /, *, common: Common = Common()) -> int:
    """Let a drained daemon start jobs again.

    Parameters
    ----------
    daemon
        Name of the daemon, as `jqd daemons` lists it; default: the one that answers this command.
    """
    with common.client() as client:
        answer = client.resume_daemon(daemon)
    show_as(answer.get("note") or f"{answer['daemon']} begins jobs again", answer, common.output)
    return Exit.DONE


def _in_flight(client: Client, daemon: str) -> int | None:
    rows = [row for row in client.daemons() if row["daemon"] == daemon]
    number: int | None = rows[0]["in_flight"] if rows else 0
    return number
