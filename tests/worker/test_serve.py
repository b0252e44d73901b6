"""A whole worker: it serves, registers, drains and leaves; in this process, and as one of its own under signals."""

import asyncio
import threading
from collections import Counter
from functools import partial
from typing import Any

import httpx2
import msgspec
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from jqd import App
from jqd.client import Client
from jqd.domain.address import parse
from jqd.domain.backoff import Backoff
from jqd.domain.errors import ConfigError
from jqd.http import Guard
from jqd.worker.demo import app as demo
from jqd.worker.register import ANOTHER, NO_DAEMON, REFUSALS_MAX
from jqd.worker.serve import _guard, serve
from jqd.worker.service import Service
from tests.harness.daemon import Answer, ScriptedDaemon, open_daemon

PATIENCE_S = 30.0


async def test_a_worker_registers_works_and_unregisters(daemon: ScriptedDaemon) -> None:
    stop = trio.Event()
    options: dict[str, Any] = {"name": "demo", "concurrency": 3, "priority_min": -5, "priority_max": 9, "token": "t"}
    async with trio.open_nursery() as nursery:
        start = partial(serve, demo, daemons=[daemon.url], signals=False, stop=stop, **options)
        url = await nursery.start(start)
        await daemon.registered.wait()
        (card,) = daemon.workers.values()
        assert card == {
            "name": "demo",
            "url": url,
            "jobs": [
                {"name": "echo", "keep_result": True},
                {"name": "add", "keep_result": True},
                {"name": "sleep", "timeout": 3600},
                {"name": "fail", "max_retry": 2},
                {"name": "flaky", "max_retry": 5, "keep_result": True},
            ],
            "max_jobs": 3,
            "batch": 500,
            "priority_min": -5,
            "priority_max": 9,
            "ttl": 30.0,
        }
        assert daemon.seen[0].headers["authorization"] == "Bearer t"

        def push() -> Any:
            with Client(daemon.url) as client:
                ids = [client.push("add", [1, 2], keep_result=True), client.push("flaky", 1, keep_result=True)]
                infos = client.wait([*ids, client.push("fail", max_retry=1)], timeout=PATIENCE_S)
                return [(info.state, info.attempts, info.result) for info in infos]

        told = await trio.to_thread.run_sync(push)
        assert told == [("succeeded", 1, 3), ("succeeded", 3, "1 took 3 attempts"), ("failed", 2, None)]
        async with httpx2.AsyncClient(trust_env=False) as http:
            health = await http.get(url)
            assert "server" not in health.headers
            assert health.json()["status"] == "ok"
        stop.set()
    assert daemon.workers == {}
    async with httpx2.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get(url)


async def test_a_job_that_pushes_a_job_pushes_it_where_its_worker_works(
    daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JQD_URL", "http://127.0.0.1:9")  # of somebody else: the worker was told its daemons
    app, stop = App(), trio.Event()

    @app.job()
    def second(argument: int, /) -> int:
        return argument + 1

    @app.job()
    def first(argument: int, /) -> str:
        return second.options(keep_result=True).push(argument + 1).job_id

    async with trio.open_nursery() as nursery:
        daemons = ["http://127.0.0.1:9", daemon.url]  # the first does not answer
        await nursery.start(partial(serve, app, daemons=daemons, signals=False, stop=stop, concurrency=1))
        await daemon.registered.wait()

        def push() -> Any:
            with Client(daemon.url) as client:
                inner = client.result(client.push("first", 1, keep_result=True), wait=PATIENCE_S)
                return client.result(inner, wait=PATIENCE_S)

        assert await trio.to_thread.run_sync(push) == 3
        stop.set()
    assert app.client.url == "http://127.0.0.1:9", "it is a worker no more"
    assert App("http://127.0.0.1:1").client.url == "http://127.0.0.1:1"


async def test_what_is_in_hand_ends_before_the_worker_stops(daemon: ScriptedDaemon) -> None:
    app, begun, go, stop = App(), trio.Event(), trio.Event(), trio.Event()

    @app.job()
    async def wait(argument: object, /) -> str:
        begun.set()
        await go.wait()
        return "done"

    with capture_logs() as lines:
        await _stop_while_it_works(daemon, app, begun, go, stop)
    told = [line["waits_for"] for line in lines if line["event"] == "worker.draining"]
    assert [said.split(" for ")[0] for said in told] == ["a (wait)"]


async def _stop_while_it_works(
    daemon: ScriptedDaemon, app: App, begun: trio.Event, go: trio.Event, stop: trio.Event
) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve, app, daemons=[daemon.url], signals=False, stop=stop))
        await daemon.registered.wait()
        with Client(daemon.url) as client:
            await trio.to_thread.run_sync(partial(client.push, "wait", job_id="a", keep_result=True))
            await begun.wait()
            stop.set()
            await daemon.unregistered.wait()
            async with httpx2.AsyncClient(trust_env=False) as http:
                with trio.fail_after(PATIENCE_S):
                    while (answer := await http.post(url, json={"jobs": []})).status_code == 200:
                        await trio.lowlevel.checkpoint()
            assert answer.status_code == 503
            assert answer.json()["detail"] == "this worker is stopping"
            go.set()
            assert (await trio.to_thread.run_sync(client.result, "a", PATIENCE_S)) == "done"


async def test_after_the_drain_time_what_is_left_is_handed_back_untried() -> None:
    app, begun, stop = App(), threading.Semaphore(0), trio.Event()
    stopped, go = [], threading.Event()

    @app.job()
    async def task(argument: object, /) -> None:
        begun.release()
        try:
            await trio.sleep_forever()
        finally:
            stopped.append("trio")

    @app.job(loop="asyncio")
    async def foreign(argument: object, /) -> None:
        begun.release()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            stopped.append("asyncio")

    @app.job()
    def thread(argument: object, /) -> None:
        begun.release()
        go.wait(PATIENCE_S)

    jobs = [{"job_id": name, "name": name} for name in ("task", "foreign", "thread", "thread")]
    jobs[-1]["job_id"] = "waiting"
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            start = partial(serve, app, daemons=[], signals=False, stop=stop, drain_s=0.01, concurrency=1)
            url = await nursery.start(start)

            async def post() -> None:
                async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
                    answer = await http.post(url, json={"jobs": jobs})
                told = {each["job_id"]: (each["type"], each["message"]) for each in answer.json()}
                untried = ("refused", "handed back: this worker is stopping")
                assert told == dict.fromkeys(("task", "foreign", "thread"), untried) | {
                    "waiting": ("refused", "not begun: this worker is stopping")
                }

            nursery.start_soon(post)
            for _ in range(3):
                assert await trio.to_thread.run_sync(begun.acquire, True, PATIENCE_S)
            stop.set()
        go.set()
    assert sorted(stopped) == ["asyncio", "trio"]
    told = {line["event"]: line for line in lines}
    assert "worker.job_timed_out" not in told
    interrupted = [line["job_id"] for line in lines if line["event"] == "worker.job_interrupted"]
    assert sorted(interrupted) == ["foreign", "task"], "what was stopped has not failed"
    assert "worker.job_raised" not in told
    left = told["worker.runs_on"]
    assert (left["job_id"], left["name"]) == ("thread", "thread"), "a thread cannot be stopped, and that is said"
    assert told["worker.handed_back"]["running_on"] == 1


async def test_cancelled_from_outside_it_still_unregisters(daemon: ScriptedDaemon) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, demo, daemons=[daemon.url], signals=False))
        await daemon.registered.wait()
        nursery.cancel_scope.cancel()
    assert daemon.workers == {}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"daemons": ["http://[::1"]}, "is no http URL"),
    ({"bind": "nowhere"}, "is not host:port; write one like"),
    ({"bind": "127.0.0.1:99999"}, "is not host:port"),
    ({"bind": "0.0.0.0:0"}, "is no address others can use; add advertise"),
    ({"bind": "[::]:0"}, "is no address others can use; add advertise"),
    ({"concurrency": 0}, "concurrency 0 would run nothing"),
    ({"daemons": ["127.0.0.1:7420"]}, "daemon '127.0.0.1:7420' is no http URL"),
    ({"daemons": ["http://127.0.0.1:7420/v1"]}, "write its URL without /v1"),
    ({"advertise": "worker:80"}, "advertise 'worker:80' is no http URL"),
    ({"priority_min": 2, "priority_max": 1}, "priority_min 2 is above priority_max 1"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
async def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace(".", r"\.")):
        await serve(demo, **{"signals": False, **options})


async def test_it_ends_where_every_daemon_refuses_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.worker.register.BACKOFF", Backoff(first_s=0.001, factor=1.0, cap_s=0.001))
    refusal = Answer(403, {"detail": "this token is of the role push"})
    async with open_daemon() as one, open_daemon() as two:
        one.script("POST", "/v1/workers", *[refusal] * 1_000)
        with trio.fail_after(PATIENCE_S), pytest.raises(ConfigError) as caught:
            await serve(demo, daemons=[one.url], signals=False)
        assert f"{one.url} answered 403: this token is of the role push; give it another" in str(caught.value)
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve, demo, daemons=[one.url, two.url], signals=False, stop=stop))
            with trio.fail_after(PATIENCE_S):
                while one.counted("POST", "/v1/workers") < 20 or not two.workers:
                    await trio.testing.wait_all_tasks_blocked(0.001)
            assert list(two.workers), "the other one has work for it"
            stop.set()


@pytest.mark.parametrize("pull", [False, True], ids=["posted to", "pulls"])
async def test_a_worker_that_a_daemon_took_is_not_ended_by_refusals_before_or_elsewhere(
    monkeypatch: pytest.MonkeyPatch, pull: bool
) -> None:
    monkeypatch.setattr("jqd.worker.register.BACKOFF", Backoff(first_s=0.001, factor=1.0, cap_s=0.001))
    asked, enough = Counter[str](), trio.Event()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/v1/workers":
            return httpx2.Response(503)
        asked[request.url.host] += 1
        if request.url.host == "late":
            if asked["early"] <= REFUSALS_MAX:
                raise httpx2.ConnectError("down")
            asked["refused"] += 1
            if asked["refused"] == 4 * REFUSALS_MAX:
                enough.set()
        elif asked["early"] > REFUSALS_MAX:
            worker_id = msgspec.msgpack.decode(request.content)["worker_id"]
            return httpx2.Response(201, content=msgspec.msgpack.encode({"worker_id": worker_id}))
        return httpx2.Response(401, content=msgspec.msgpack.encode({"detail": "this token is none"}))

    def client(token: str | None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    monkeypatch.setattr("jqd.worker.serve._client", client)
    stop, daemons = trio.Event(), ["http://early", "http://late"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, demo, daemons=daemons, pull=pull, signals=False, stop=stop))
        with trio.fail_after(PATIENCE_S):
            await enough.wait()
        assert not stop.is_set(), "it works for the other one"
        stop.set()


@pytest.mark.parametrize(
    ("refusal", "says", "advises"),
    [
        (Answer(401, {"detail": "this token is none that is known here"}), "is none that is known here; ", ANOTHER),
        (Answer(403, {"detail": "this token is for a; not for jobs 'b'"}), "not for jobs 'b'; ", ANOTHER),
        (
            Answer(
                403, {"detail": "worker 'w' takes jobs that this token is not for; register under another id and name"}
            ),
            "register under another id and name",
            "",
        ),
        (Answer(403), "answered 403: Forbidden, ", NO_DAEMON),
    ],
)
async def test_what_to_do_about_a_refusal_follows_from_what_it_says(
    monkeypatch: pytest.MonkeyPatch, daemon: ScriptedDaemon, refusal: Answer, says: str, advises: str
) -> None:
    monkeypatch.setattr("jqd.worker.register.BACKOFF", Backoff(first_s=0.001, factor=1.0, cap_s=0.001))
    daemon.script("POST", "/v1/workers", *[refusal] * REFUSALS_MAX)
    with trio.fail_after(PATIENCE_S), pytest.raises(ConfigError) as caught:
        await serve(demo, daemons=[daemon.url], signals=False)
    assert str(caught.value).endswith(says + advises)


async def test_a_mistake_of_ours_is_a_500_with_the_id_of_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = trio.Event()

    def fail(self: Service) -> str:
        raise ValueError("a-secret")

    monkeypatch.setattr(Service, "refusing", fail)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve, demo, daemons=[], signals=False, stop=stop))
        with capture_logs() as lines:
            async with httpx2.AsyncClient(trust_env=False) as http:
                told = [await http.get(url), await http.post(url, json={"jobs": []})]
        stop.set()
    assert [answer.status_code for answer in told] == [500, 500]
    assert [answer.json()["id"] for answer in told] == [line["id"] for line in lines if "id" in line]
    assert "a-secret" not in str(lines) + "".join(answer.text for answer in told)


async def test_an_address_in_use_is_an_os_error() -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        with pytest.raises(OSError, match="in use"):
            await serve(demo, bind=f"127.0.0.1:{taken.getsockname()[1]}", daemons=[], signals=False)


@pytest.mark.parametrize(
    ("bind", "advertise", "secrets", "guard"),
    [
        ("127.0.0.1:0", None, (), Guard(is_open=True)),
        ("127.0.0.1:0", "https://Worker.lan:9/run", (), Guard(hosts=("worker.lan",), is_open=True)),
        ("[::1]:0", "http://[fd00::1]/", ("whsec_x",), Guard(hosts=("[fd00::1]",))),
        ("0.0.0.0:0", "http://worker:9", ("whsec_x",), Guard(loopback=False)),
        ("0.0.0.0:0", "http://worker.lan:9", None, Guard(loopback=False, hosts=("worker.lan",), is_open=True)),
        ("Worker.lan:0", None, None, Guard(loopback=False, hosts=("worker.lan",), is_open=True)),
    ],
)
def test_by_which_names_daemons_ask_for_it(
    bind: str, advertise: str | None, secrets: tuple[str, ...] | None, guard: Guard
) -> None:
    assert _guard(parse(bind), advertise, secrets) == guard


def test_nothing_of_this_process_was_left_running() -> None:
    """Threads of workers that have stopped leave by themselves; one that stays would be a leak."""
    for thread in threading.enumerate():
        if thread.name.startswith("jqd-job"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), thread.name
