"""The app of test_testing.py: jobs that end in every way, with waits that a real daemon can keep in a test."""

import asyncio

import trio

import jqd

app = jqd.App()
put_off: set[str] = set()  # ids of jobs that were too early once


@app.job(keep_result=True)
def add(a: int, b: int = 1) -> int:
    return a + b


@app.job(keep_result=True, max_retry=2, backoff=["50ms", "100ms"])
def flaky(fails: int) -> str:
    attempt = jqd.current().attempt
    if attempt <= fails:
        raise ConnectionError(f"attempt {attempt}")
    return f"after {fails}"


@app.job(keep_result=True)
def busy() -> int:
    if not jqd.current().attempt > 1:
        raise jqd.Retry(after="50ms", message="the printer is busy")
    return jqd.current().attempt


@app.job
def hopeless() -> None:
    jqd.current().log("looked everywhere")
    raise jqd.Failed("there is no such thing", error={"code": 7})


@app.job(keep_result=True)
def odd() -> object:
    return object()


@app.job(keep_result=True)
async def nap(seconds: float) -> float:
    await trio.sleep(seconds)
    return seconds


@app.job(keep_result=True, loop="asyncio", max_retry=0)
async def rest(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@app.job(keep_result=True)
def parent(a: int) -> str:
    return add.options(id=f"child-{a}").push(a).job_id


@app.job
def quiet() -> None: ...


@app.job(keep_result=True, max_retry=1, backoff=["50ms"])
def talk(a: int) -> int:
    job = jqd.current()
    job.progress(0.5, "half")
    job.log("as it is")
    job.push(add.options(tags=[f"follows-{a}"]), a)
    if job.attempt == 1:
        raise ValueError("not yet")
    return a


@app.job(keep_result=True, max_retry=0)
def early() -> int:
    job = jqd.current()
    if job.job_id not in put_off:
        put_off.add(job.job_id)
        raise jqd.Snooze("1s", "too early")
    return job.attempt
