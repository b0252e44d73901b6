"""Results too large to be kept, by each way that a worker has to say them: dropped and said, or required."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jqd import App
from jqd.cli import run
from jqd.client import Client, JobFailed, JobInfo, NoResult
from tests.live.harness import LEASE, Daemon, Process, pair
from tests.live.puller import Puller
from tests.live.test_hooks import Hook, hook, registered, say
from tests.live.test_lightjq import Master, Worker, serving

assert hook is not None  # the fixture
LARGE = "x" * 10_000  # and some bytes that say how long it is
WAIT_S = 30.0
WANTED: list[Any] = [True, "required"]


@pytest.fixture(scope="module")
def small() -> Iterator[Daemon]:
    """One of two, which keep little."""
    with pair({**LEASE, "JQD_RUNNER__RESULT_BYTES_MAX": "10000"}) as (_, one, two, _):
        yield one
        assert (one.stop(), two.stop()) == (0, 0)


def ended(info: JobInfo) -> tuple[str, Any, bool]:
    return info.state, info.result, (info.message or "").startswith("RESULT_DROPPED: the result has 10")


def expected(keep: object) -> tuple[str, Any, bool]:
    return "failed" if keep == "required" else "succeeded", None, True


@pytest.mark.parametrize("keep", WANTED)
def test_of_a_web_hook(small: Daemon, hook: Hook, keep: Any) -> None:
    with Client(small.url) as client, registered(small, hook.url, "hooked large", style="webhook"):
        job_id = client.push("hooked large", say((200, {}, LARGE + "xxxxx")), keep_result=keep)
        assert ended(client.get(job_id, WAIT_S)) == expected(keep)
        job_id = client.push("hooked large", say((200, {}, LARGE * 9)))
        assert client.get(job_id, WAIT_S).message is None, "nobody wanted it"


@pytest.mark.parametrize("keep", WANTED)
def test_of_a_worker_that_pulls(small: Daemon, keep: Any) -> None:
    with Client(small.url) as client, Puller(small.url, "pulled large") as worker:
        sent, unsent = (client.push("pulled large", keep_result=keep) for _ in range(2))
        for _ in range(2):
            lease = worker.lease(1)
            (job,) = lease["jobs"]
            what = {"result": LARGE} if job["job_id"] == sent else {"result_bytes": 10_485_760}
            told = {"job_id": job["job_id"], "type": "success", **what}
            assert worker.report(lease["lease_id"], told) == [200]
            assert worker.report(lease["lease_id"], told) == [409 if keep == "required" else 200], "as what stands"
        assert ended(client.get(sent, WAIT_S)) == ended(client.get(unsent, WAIT_S)) == expected(keep)


def test_of_lightjq(small: Daemon) -> None:
    with serving(Worker(Master(small.url))) as worker:
        card = {"name": "large", "max_jobs": 2, "url": f"http://127.0.0.1:{worker.server_port}", "jobs": ["greet"]}
        worker.worker_id = httpx2.post(small.url + "/worker", json=card).json()["worker_id"]
        job = {"name": "greet", "argument": {"much": LARGE}, "keep_result": True}
        job_id = worker.master.ask("POST", "/job", job)[1]["job_id"]
        status, told = worker.master.ask("GET", "/job/{job_id}/polling?timeout=20", into=job_id)
        assert (status, told["status"], told["result"]) == (200, "done", None)
        assert told["message"].startswith("RESULT_DROPPED: the result has 10")
        assert worker.master.ask("DELETE", "/worker", worker_id=worker.worker_id)[0] == 204


def text(given: str, /) -> str:
    return given


def test_of_a_worker_in_python(small: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["worker", "jqd.worker.demo:app", "--daemon", small.url]
    with Client(small.url) as client, Process(args, tmp_path / "log") as worker:
        small.wait_worker("echo")
        for keep in WANTED:
            job_id = client.push("echo", LARGE, keep_result=keep)
            assert ended(client.get(job_id, WAIT_S)) == expected(keep)
            with pytest.raises(JobFailed if keep == "required" else NoResult, match="RESULT_DROPPED"):
                client.result(job_id)
        app = App()
        app.job(name="echo", keep_result=True)(text)
        with (
            app.pushing_by(client),
            pytest.raises(NoResult, match=r"\(echo\) has succeeded; RESULT_DROPPED: the result has 10"),
        ):
            app.jobs["echo"].push(LARGE).result(wait=WAIT_S)
        assert run(["push", "echo", LARGE, "--result", "--url", small.url]) == 1
        said = capsys.readouterr()
        assert said.out == "", "null would be what a job returns that returns nothing"
        assert "(echo) has succeeded; RESULT_DROPPED: the result has 10" in said.err
        worker.stop()
