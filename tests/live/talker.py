# ruff: noqa: T201 - what jobs print is what this is about
"""The app of the live test of jobs that talk while they run."""

import logging
import sys
import time

import jqd

app = jqd.App()


@app.job(keep_result=True, timeout=60)
def page(number: int) -> int:
    """Says how far it is until somebody has seen that, and cancels it."""
    job = jqd.current()
    while not job.cancelled:
        job.progress(number / 10, f"page {number}")
        time.sleep(0.02)  # work
    raise jqd.Cancelled


@app.job(timeout=1.5, max_retry=0)
def hang() -> None:
    """Prints, logs, and never ends."""
    print("before", end=" ")
    print("the end")
    jqd.current().log("a word")
    print("half a line", end="")
    time.sleep(600)


@app.job(max_retry=0)
def mutter() -> None:
    """Says more than a pipe takes, in each way there is."""
    for _ in range(20):
        print("x" * 5_000)
        print("y", file=sys.stderr, flush=True)
        logging.getLogger("talker").warning("z")


@app.job(max_retry=0)
def early() -> None:
    """Too early the first time, which is no attempt. Then two jobs follow."""
    job = jqd.current()
    print("attempt", job.attempt)
    job.push(once, by=job.job_id)
    job.push(once.options(id=f"own-{job.job_id}"), by=job.job_id)
    if not marked(job.job_id):
        raise jqd.Snooze(1, "not yet")


@app.job()
async def once(by: str) -> None:
    """Follows."""


def marked(job_id: str, marks: set[str] = set()) -> bool:  # noqa: B006 - it is to last
    """Whether it was asked before."""
    was = job_id in marks
    marks.add(job_id)
    return was
