"""`jqd logs`: prints a job's log, or with --follow all its events as they happen."""

import sys
from typing import Annotated

from cyclopts import Parameter

from jqd.cli.common import Common, checked_id
from jqd.cli.exits import Exit
from jqd.cli.printing import print_line, print_note
from jqd.cli.render import show
from jqd.client import Client, JobEvent, NotFound


def logs(
    job_id: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="", show_default=False)] = False,
    common: Common = Common(),
) -> int:
    """Print the last lines that a job printed; with --follow each line as it comes, until the job has ended.

    Parameters
    ----------
    job_id
        The job's id.
    follow
        Go on until the job has ended; show its state on stderr; end with 1 if it failed or was cancelled.
    """
    with common.client() as client:
        if follow:
            return _follow(client, checked_id(job_id), common)
        log = client.log(checked_id(job_id))
    if common.output != "table":
        show({"job_id": job_id, "log": log}, common.output)
    elif log:
        _print_lines(log.split("\n"))
    else:
        print_note(f"nothing is kept that job {job_id} printed")
    return Exit.DONE


def _follow(client: Client, job_id: str, common: Common) -> int:
    state = ""
    for event in client.events(job_id):
        state = str(event.data.get("state", state))
        if common.output != "table":
            show({"event": event.kind, **event.data}, "jsonl")
        elif event.kind == "log":
            if event.data["dropped"]:
                print_note(f"{event.data['dropped']} bytes before this are not kept")
            _print_lines(event.data["lines"])
        else:
            print_note(_line_of(event))
        if event.kind == "end" and event.data["reason"] != "ended":
            raise NotFound(f"job {job_id} is not there any more: {event.data['reason']}", status=404)
    return Exit.DONE if state == "succeeded" else Exit.FAILED


def _line_of(event: JobEvent) -> str:
    data = event.data
    if event.kind == "progress":
        done = "" if data["done"] is None else f"{data['done']:.0%} "
        return f"{done}{data['message'] or ''}".strip()
    if event.kind == "end":
        return f"ended: {data.get('state', data['reason'])}"
    attempts = f", attempt {data['attempts']}" if data["attempts"] else ""
    return f"{data['state']}{attempts}" + (f": {data['message']}" if data.get("message") else "")


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print_line(line)
    sys.stdout.flush()
