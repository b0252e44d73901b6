"""Processes of a worker, without a daemon: batches are posted to a real worker, and real processes run them."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import trio
from structlog.testing import capture_logs

from jqd import App
from jqd.domain.backoff import Backoff
from jqd.worker import process_pool as crews
from jqd.worker import service as services
from jqd.worker.attempt_output import OUTPUT_BYTES_MAX, SUCCESS_LOG_BYTES_MAX
from jqd.worker.batch import Item
from jqd.worker.serve import serve
from jqd.worker.service import Service, ServiceConfig
from tests.worker.exchange import Exchange, packed
from tests.worker.pooled import MODULE, PATIENCE_S, here, job, outcomes, served, wait_until, write

__all__ = ["here"]


async def test_jobs_of_every_kind_end_in_processes_as_they_do_in_threads() -> None:
    async with served() as (service, process_pool):
        assert {name: (job.loop, dict(job.declared)) for name, job in process_pool.jobs.items()}["plain"] == (
            None,
            {"timeout": 9},
        )
        exchange = await Exchange(service, packed(job("plain", [1]), job("doze", "a"), job("nobody"))).run()
        told = outcomes(exchange)
        assert (told["plain"]["result"], told["doze"]["result"]) == ({"got": [1]}, ["a"])
        assert told["nobody"]["error"] == "unknown job name"
        body = msgspec.json.encode({"jobs": [job("plain", {"a": None}), {"job_id": "x", "name": "plain"}]})
        as_json = outcomes(await Exchange(service, body, {"content-type": "application/json"}).run())
        assert [as_json[name]["result"] for name in ("plain", "x")] == [{"got": {"a": None}}, {"got": None}]

        exchange = Exchange(service, packed(job("watch", "watching"), job("task", "waiting")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await wait_until(lambda: Path("watching").exists() and Path("waiting").exists())
            answer = await Exchange(service, b"", method="DELETE", query="job_id=watch&job_id=task").run()
            assert answer.status == 204
        told = outcomes(exchange)
        assert [(told[name]["status"], told[name]["message"]) for name in ("watch", "task")] == [
            (499, "cancelled: half way"),
            (499, "cancelled"),
        ]


async def test_a_death_is_its_own_jobs_and_a_blocked_loop_is_killed() -> None:
    async with served() as (service, process_pool):
        with capture_logs() as lines:
            dying = [job("leave", 7), job("stop_itself"), job("plain", 1)]
            told = outcomes(await Exchange(service, packed(*dying)).run())
        assert (told["leave"]["error"], told["leave"]["should_retry"]) == ("process died", True)
        assert told["leave"]["message"] == "the job took its process down: it exited with 7"
        # The second death in a row is waited for; what waits behind it comes to nobody's harm.
        assert (
            told["stop_itself"].get("message", "").endswith("killed by SIGKILL")
            or told["stop_itself"]["type"] == "refused"
        )
        assert told["plain"]["type"] in ("success", "refused")
        assert next(line["how"] for line in lines if line["event"] == "worker.process_died") == "it exited with 7"
        # Its neighbour's time is over first: that does not say who blocks the loop. When it comes again it is alone.
        blocked = [job("block", "beside", timeout=PATIENCE_S), job("task", "beside", timeout=0.5)]
        told = outcomes(await Exchange(service, packed(*blocked)).run())
        assert [told[name]["type"] for name in ("block", "task")] == ["refused", "refused"]
        assert "next time it is alone" in told["task"]["message"]
        await wait_until(
            lambda: any(process.kind == "async" and process.is_open for process in process_pool._process_pool)
        )
        blocked = [job("block", "beside", timeout=1.0), job("doze", "later", timeout=PATIENCE_S)]
        told = outcomes(await Exchange(service, packed(*blocked)).run())
        assert told["block"]["reason"] == "timeout"
        assert told["doze"]["type"] in ("success", "refused"), "a busy machine may be slow to fill the place"


@asynccontextmanager
async def served_inside(kind: str) -> AsyncIterator[Service]:
    """As `served`, with one thread or one task of an asyncio loop instead of processes."""
    app = App(loop="asyncio")
    go = threading.Event()

    @app.job("watch")
    def watch(argument: Any, /) -> None:
        Path(argument).touch()
        go.wait(PATIENCE_S)

    @app.job("watch async")
    async def watch_async(argument: Any, /) -> None:
        Path(argument).touch()  # noqa: ASYNC240 - it takes microseconds
        await asyncio.sleep(PATIENCE_S)

    names = (
        {"watch": "watch", "plain": "watch"} if kind == "thread" else dict.fromkeys(("watch", "plain"), "watch async")
    )
    service = Service({name: app.jobs[of] for name, of in names.items()}, ServiceConfig(concurrency=1))
    try:
        yield service
    finally:
        go.set()
        service.close()


@pytest.mark.parametrize("kind", ["thread", "asyncio", "process"])
async def test_what_was_handed_back_is_not_kept_while_a_long_job_is_at_work(kind: str) -> None:
    async with AsyncExitStack() as stack:
        if kind == "process":
            service, _ = await stack.enter_async_context(served())
        else:
            service = await stack.enter_async_context(served_inside(kind))
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(Exchange(service, packed(job("watch", "watching", timeout=600))).run)
        await wait_until(lambda: Path("watching").exists())
        for _ in range(4):
            many = [job("plain", "x", timeout=0.05, job_id=str(number)) for number in range(100)]
            told = outcomes(await Exchange(service, packed(*many)).run())
            assert {each["type"] for each in told.values()} == {"refused"}
        gc.collect()
        kept = sum(type(each) is Item for each in gc.get_objects())  # asking a lazy object for its class wakes it
        nursery.cancel_scope.cancel()
        assert kept < 250, "of 400: the last hundred may wait for the next look"


async def test_a_suspect_gets_a_process_of_its_own_beside_long_jobs_and_another_keeps_nobody_away() -> None:
    async with served() as (service, process_pool), trio.open_nursery() as nursery:
        nursery.start_soon(Exchange(service, packed(job("task", "at work", timeout=600))).run)
        await wait_until(lambda: Path("at work").exists())
        process_pool._suspects.add(["tried", "late"])
        told = outcomes(await Exchange(service, packed(job("doze", "a", job_id="tried", timeout=60))).run())
        while told["tried"]["type"] == "refused":  # as long as its process starts, on a busy machine
            told = outcomes(await Exchange(service, packed(job("doze", "a", job_id="tried", timeout=60))).run())
        assert told["tried"]["result"] == ["a"]
        extra = next(process for process in process_pool._process_pool if process.is_extra)
        beside = outcomes(await Exchange(service, packed(job("doze", "b"))).run())
        assert (beside["doze"]["result"], extra.given) == (["b"], 1), "it is for suspects alone"
        extra.is_retiring = True  # as if it was at work
        told = outcomes(await Exchange(service, packed(job("doze", "a", job_id="late", timeout=0.2))).run())
        assert (told["late"]["type"], "retry_after" in told["late"]) == ("refused", False)
        nursery.cancel_scope.cancel()


async def test_a_suspect_waits_for_its_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PATIENCE_S", 0.01)  # of others: it would go back and forth until then
    async with served() as (service, process_pool), trio.open_nursery() as nursery:
        nursery.start_soon(Exchange(service, packed(job("task", "at work", timeout=600))).run)
        await wait_until(lambda: Path("at work").exists())
        process_pool._suspects.add(["tried", "again"])
        several = [job("doze", each, job_id=each, timeout=600) for each in ("tried", "again")]
        told = outcomes(await Exchange(service, packed(*several)).run())
        assert [told[each].get("result") for each in ("tried", "again")] == [["tried"], ["again"]]
        nursery.cancel_scope.cancel()


async def test_the_process_for_suspects_leaves_when_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "EXTRA_IDLE_S", 0.01)
    async with served() as (service, process_pool), trio.open_nursery() as nursery:
        nursery.start_soon(Exchange(service, packed(job("task", "at work", timeout=600))).run)
        await wait_until(lambda: Path("at work").exists())
        process_pool._suspects.add(["tried"])
        await Exchange(service, packed(job("doze", "a", job_id="tried", timeout=60))).run()
        await wait_until(lambda: not process_pool._has_extra)
        assert len(process_pool._all) == 2, "one for plain functions, one for async ones"
        nursery.cancel_scope.cancel()


async def test_a_cancelled_plain_function_that_does_not_look_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "CANCEL_S", 0.1)
    async with served() as (service, _), trio.open_nursery() as nursery:
        exchange = Exchange(service, packed(job("deaf", "hangs", timeout=600)))
        nursery.start_soon(exchange.run)
        await wait_until(lambda: Path("hangs").exists())
        await Exchange(service, b"", method="DELETE", query="job_id=deaf").run()
        await wait_until(lambda: exchange.done)
    told = outcomes(exchange)["deaf"]
    assert (told["status"], told["message"]) == (499, "cancelled: its process was ended")
    assert told["log"] == "about to hang", "what it had printed is here although it is gone"


LOUD = """
import os, subprocess, time
from jqd import App, current

app = App()

@app.job()
def shout(how, /):
    print("begins")
    subprocess.run(["sh", "-c", "echo out; echo err >&2; yes 0123456789 | head -c 200000; echo; echo last"], check=True)
    if how == "raises":
        raise ValueError("no good")
    if how == "dies":
        os.write(1, b"C says why")
        os._exit(7)
    if how == "hangs":
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "error"), [("raises", "ValueError: no good"), ("dies", "process died"), ("hangs", "timeout")]
)
async def test_what_programs_print_that_a_job_starts_is_kept_with_its_failed_attempt(how: str, error: str) -> None:
    async with served(source=LOUD) as (service, process_pool):
        told = outcomes(await Exchange(service, packed(job("shout", how, timeout=1.0))).run())
        (failed,) = told.values()
        log = failed["log"]
        assert (failed["error"], len(log.encode()) <= OUTPUT_BYTES_MAX) == (error, True)
        assert "last" in log.splitlines()[-2:]
        assert log.endswith("C says why" if how == "dies" else "last")
        await wait_until(lambda: process_pool.free("shout") > 0)  # again: a job that waits for one for long goes back
        (quiet,) = outcomes(await Exchange(service, packed(job("shout", "returns", timeout=9))).run()).values()
        assert (quiet["type"], quiet["log"][-4:], len(quiet["log"])) == ("success", "last", SUCCESS_LOG_BYTES_MAX)
        assert quiet["log_from"] > OUTPUT_BYTES_MAX - SUCCESS_LOG_BYTES_MAX


async def test_when_processes_only_die_their_jobs_are_refused_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "BACKOFF", Backoff(first_s=PATIENCE_S, cap_s=PATIENCE_S))
    source = "import os\nfrom jqd import App\napp = App()\n@app.job()\ndef leave(argument, /):\n    os._exit(5)\n"
    async with served(source=source) as (service, process_pool):
        for number in range(2):
            # Until a process is there again: a job that waits for one for long goes back.
            await wait_until(lambda: process_pool.free("leave") > 0)
            assert service.refusing() is None
            told = outcomes(await Exchange(service, packed(job("leave", job_id=str(number)))).run())
            assert told[str(number)]["error"] == "process died"
        await wait_until(lambda: process_pool.is_helpless)
        refused = await Exchange(service, packed(job("leave"))).run()
        assert refused.status == 503
        assert "plain functions: it exited with 5" in refused.body["detail"]
        assert service.trouble() == refused.body["detail"]


async def test_a_worker_of_processes_serves_and_stops_and_its_tasks_tidy_up(capfd: pytest.CaptureFixture[str]) -> None:
    write(MODULE)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        options: dict[str, Any] = {"signals": False, "daemons": ["http://127.0.0.1:9"], "drain_s": 0.01}
        url = await nursery.start(partial(serve, "crewed", processes=2, stop=stop, **options))

        async def hold() -> None:
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
                answer = await http.post(url, json={"jobs": [job("task", "at work"), job("watch", "looking")]})
            assert [each["type"] for each in answer.json()] == ["refused", "refused"]

        nursery.start_soon(hold)
        await wait_until(lambda: Path("at work").exists() and Path("looking").exists())
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            answer = await http.post(url, json={"jobs": [job("plain", 1)]})
            health = (await http.get(url)).json()
        assert answer.json()[0]["result"] == {"got": 1}
        assert (health["status"], health["jobs"][0]) == ("ok", "plain")
        stop.set()
    await wait_until(Path("at work.left").exists)
    said = capfd.readouterr().err
    assert ("job_interrupted" in said, "job_timed_out" in said) == (True, False), said


async def test_an_address_in_use_is_an_os_error_with_processes_too() -> None:
    write(MODULE)
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            await serve("crewed", processes=1, bind=bind, daemons=["http://127.0.0.1:9"], signals=False)
