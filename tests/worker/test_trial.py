"""`app.testing`: what the contract with a daemon (tests/live/test_testing.py) does not show."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import timedelta

import pytest
import trio
from structlog.testing import capture_logs

import jqd
from jqd.client import JqdClientError
from jqd.testing.trial import Trial

app = jqd.App("http://127.0.0.1:9")  # nobody's: what left the process would fail
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@app.job(keep_result=True)
def greet(name: str) -> str:
    return f"{name} of {tenant.get()}"


@app.job(keep_result=True)
async def wave(name: str) -> str:
    await trio.lowlevel.checkpoint()
    return f"{name} of {tenant.get()}"


@app.job(keep_result=True, loop="asyncio")
async def nod(name: str) -> str:
    await asyncio.sleep(0)
    return f"{name} of {tenant.get()}"


@app.job
async def strays() -> None:
    await asyncio.sleep(0.001)


@app.job(loop="asyncio")
async def strays_too() -> None:
    await trio.sleep(0.001)


@app.job(max_retry=1, backoff="10s")
def fail() -> None:
    raise LookupError("no such row")


@app.job
def chain(left: int) -> None:
    if left:
        chain.push(left - 1)


@app.job(keep_result=True)
def ask(name: str) -> str:
    return greet.push(name).result(wait="1m").upper()


@pytest.fixture
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


def test_nothing_runs_before_it_is_told_to_and_time_stands_still() -> None:
    with app.testing("fake") as t:
        before = t.now
        greet.push("ann")
        wave.options(delay="5m", tags=["x"]).push("bob")
        assert [(job.name, job.argument, job.state) for job in t.pushed()] == [
            ("greet", {"name": "ann"}, "waiting"),
            ("wave", {"name": "bob"}, "scheduled"),
        ]
        assert [job.tags for job in t.pushed(wave)] == [["x"]]
        assert [job.job_id for job in t.pushed("greet")] == [t.pushed(greet)[0].job_id]
        assert (t.run_all(), t.run_all()) == (1, 0)
        assert (t.now, [job.state for job in t.pushed()]) == (before, ["succeeded", "scheduled"])
        assert (t.advance("4m"), t.advance("1m")) == (0, 1)
        assert (t.now - before).total_seconds() == 300
        with pytest.raises(jqd.TimedOut, match="still waiting after 30 s"):
            greet.push("cy").result(wait="30s")
        assert (t.now - before).total_seconds() == 330


@pytest.mark.usefixtures("quiet")
def test_retries_come_at_their_dates() -> None:
    with app.testing("fake") as t:
        ref = fail.push()
        began = t.now
        assert t.run_all() == 1
        eligible_at = ref.status().eligible_at
        assert eligible_at is not None
        assert (eligible_at - began).total_seconds() == 10
        assert (t.run_all(until_done=True), (t.now - began).total_seconds()) == (1, 10)
        assert [each["attempt"] for each in ref.status().history] == [1, 2]
        assert "LookupError: no such row" in str(ref.status().message)


def test_a_function_sees_what_its_test_has_set_up() -> None:
    tenant.set("acme")
    with app.testing("inline") as t:
        assert [job.push("ann").result() for job in (greet, wave, nod)] == ["ann of acme"] * 3
        assert ask.push("bob").result() == "BOB OF ACME", "a job may wait for one that it pushes"
        chain.push(100)
        assert {job.state for job in t.pushed(chain)} == {"succeeded"}
        assert len(t.pushed(chain)) == 101
        assert t.client.result(t.client.push("greet", {"name": "cy"}, keep_result=True)) == "cy of acme"
    assert app.client.url == "http://127.0.0.1:9"


@pytest.mark.usefixtures("quiet")
def test_mistakes_come_out_where_that_is_asked_for() -> None:
    with app.testing("fake", raises=True) as t:
        ref = fail.push()
        with pytest.raises(LookupError, match="no such row"):
            t.run_all()
        assert ref.status().state == "retrying"
        with pytest.raises(LookupError):
            t.advance("10s")
        assert ref.status().state == "failed"
    with app.testing("inline", raises=True), pytest.raises(LookupError):
        fail.push()


@pytest.mark.usefixtures("quiet")
def test_a_function_of_the_other_loop_is_told_so() -> None:
    with app.testing("inline"):
        assert str(strays.push().status().message).endswith('declare it with @app.job(loop="asyncio")\n')
        assert str(strays_too.push().status().message).endswith('declare it with @app.job(loop="trio")\n')


@app.job(keep_result=True)
def meet(name: str) -> str:
    met.set()
    assert may_go.wait(20)
    return name


met, may_go = threading.Event(), threading.Event()


def test_threads_do_not_wait_for_each_others_jobs() -> None:
    with app.testing("inline"), ThreadPoolExecutor(1) as other:
        slow = other.submit(meet.push, "a")
        assert met.wait(20)
        assert greet.push("b").result().startswith("b"), "it has run, although a job runs in another thread"
        may_go.set()
        assert slow.result(20).result() == "a"


def test_what_pushes_itself_for_ever_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.testing.trial.trial.RUNS_MAX", 20)
    with app.testing("fake") as t:
        chain.push(10**9)
        with pytest.raises(RuntimeError, match="20 attempts were made in one call, and job 'chain' waits"):
            t.run_all()
        assert t.pushed(chain)[-1].state == "waiting"


def test_what_it_does_not_have_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with app.testing() as t, pytest.raises(JqdClientError, match=r"/v1/workers is nothing that app.testing has"):
        t.client.workers()
    monkeypatch.setitem(sys.modules, "jqd.testing.trial", None)  # as if only pushing were installed
    with pytest.raises(ModuleNotFoundError, match=r"app.testing needs more of jqd: pip install .*\[testing\]"):
        app.testing()


def in_async_code(loop: str) -> None:
    async def main() -> None:
        with app.testing("inline"):
            assert await (await nod.apush("a")).aresult() == "a of acme"
            assert wave.push("b").result() == "b of acme", "also where a loop runs in this very thread"
        with app.testing("fake") as t:
            ref = await wave.options(delay="1h").apush("c")
            assert (await t.arun_all(), await t.aadvance("1h"), await ref.aresult()) == (0, 1, "c of acme")

    tenant.set("acme")
    if loop == "trio":
        trio.run(main)
    else:
        asyncio.run(main())


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_async_tests_have_it_under_both_loops(loop: str) -> None:
    in_async_code(loop)


def test_what_follows_another_job_replaces_none() -> None:
    with pytest.raises(ValueError, match="cannot replace"):
        greet.options(id="mine", replace=True).following("ann")


def test_one_after_another_knows_nothing_of_the_one_before() -> None:
    trials: list[Trial] = []
    for _ in range(2):
        with app.testing() as t:
            assert t.pushed() == []
            greet.options(id="mine").push("ann")
            trials.append(t)
    assert trials[0] is not trials[1]


def test_why_is_told_before_a_job_and_behind_it() -> None:
    with app.testing() as t:
        job_id = t.client.push("greet", {"name": "Ada"})
        assert t.client.why(job_id)["reason"] != "ended"
        t.run_all()
        assert t.client.why(job_id)["reason"] == "ended"


def test_declared_options_hold_for_pushes_by_name() -> None:
    app = jqd.App()

    @app.job(keep_result=True, max_retry=0, timeout="7s")
    def price(item: str) -> float:
        if item == "none":
            raise ValueError(item)
        return 3.5

    @app.job(priority=3, backoff=["1s", 5], expires_in="1h", server_only=True)
    def slow() -> None: ...

    with app.testing("inline") as t:
        assert t.client.result(t.client.push("price", {"item": "tea"})) == 3.5
        failed = t.client.get(t.client.push("price", {"item": "none"}))
        assert (failed.state, failed.attempts, failed.timeout) == ("failed", 1, 7.0)
        assert t.client.get(t.client.push("price", {"item": "none"}, max_retry=3)).state == "retrying"
        job = t.client.get(t.client.push("slow", delay="1m"))
        assert job.expires_at is not None
        assert job.eligible_at is not None
        assert (job.priority, job.expires_at - job.eligible_at) == (3, timedelta(hours=1))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("when", ["before the block", "in the block", "after a push", "in a job", "before it follows"])
def test_declared_options_hold_whenever_the_job_is_registered(when: str) -> None:
    app = jqd.App()

    def register() -> None:
        @app.job(max_retry=0, timeout="7s", priority=3)
        def late() -> None:
            raise LookupError

    @app.job
    def early() -> None:
        if when == "in a job":
            register()

    if when == "before the block":
        register()
    with app.testing("fake") as t:
        if when == "in the block":
            register()
        then = [{"name": "late"}] if when in ("in a job", "before it follows") else None
        t.client.push("early", then=then)
        if when in ("after a push", "before it follows"):
            register()
        if then is None:
            t.client.push("late")
        t.run_all()
        (job,) = t.pushed("late")
        assert (job.state, job.attempts, job.timeout, job.priority) == ("failed", 1, 7.0, 3)
