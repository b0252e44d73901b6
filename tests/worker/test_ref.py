"""What a push answers: refs and batches, against a scripted daemon."""

import socket
from datetime import UTC, datetime

import msgspec
import pytest

from jqd import App, JobFailed, NoResult, Ref, TimedOut
from jqd.client import PartlyPushed
from jqd.worker.ref import PushBatch
from tests.harness.daemon import Answer, ScriptedDaemon, open_daemon


class Page(msgspec.Struct):
    number: int
    at: datetime


def told(**more: object) -> Answer:
    """How a job stands."""
    return Answer(200, {"job_id": "job-1", "name": "draw", "state": "succeeded", **more})


def an_app(daemon: ScriptedDaemon) -> App:
    app = App(daemon.url)

    @app.job(keep_result=True)
    def draw(text: str) -> Page:
        raise NotImplementedError

    @app.job
    def tell(text: str) -> None: ...

    return app


async def leave(app: App) -> None:
    """A batch whose block raises."""
    async with app.batch():
        app.jobs["tell"].push("never")
        raise KeyError


async def push_two(app: App, batch: PushBatch) -> None:
    async with batch:
        app.jobs["tell"].push("a")
        app.jobs["tell"].push("b")


async def test_a_result_is_of_the_type_that_the_function_returns() -> None:
    async with open_daemon() as daemon:
        app = an_app(daemon)
        ref: Ref[Page] = await app.jobs["draw"].apush("a")
        at = datetime(2026, 1, 31, tzinfo=UTC)
        for result, expected in [
            ({"number": 1, "at": at.isoformat()}, Page(1, at)),
            ({"number": 2, "at": at}, Page(2, at)),
        ]:
            daemon.script("GET", "/v1/jobs/job-1", told(result=result))
            assert await ref.aresult(wait="1s") == expected
        daemon.script("GET", "/v1/jobs/job-1", told(result={"number": "?"}))
        with pytest.raises(TypeError, match=r"job-1 \(draw\) returned what its function does not: .*number"):
            await ref.aresult()
        daemon.script("GET", "/v1/jobs/job-1", told(state="failed", error="no paper"))
        with pytest.raises(JobFailed, match="no paper"):
            await app.jobs["draw"].ref("job-1").aresult()
        assert (await ref.astatus()).state == "waiting"
        assert await ref.acancel()
        with pytest.raises(NoResult, match="'tell' keeps no result"):
            await (await app.jobs["tell"].apush("a")).aresult(wait="1h")
        app.client.close()


async def test_a_batch_is_one_request_and_its_refs_get_their_ids() -> None:
    async with open_daemon() as daemon:
        app = an_app(daemon)
        tell = app.jobs["tell"]
        async with app.batch(atomic=True, ack="store") as batch:
            one = await tell.apush("a")
            two = tell.options(id="mine", max_retry=1).push("b")
            with pytest.raises(RuntimeError, match="no id yet"):
                _ = one.job_id
            with pytest.raises(RuntimeError, match="a batch is open here already"), app.batch():
                pass
            with pytest.raises(ValueError, match="acknowledged together"):
                tell.options(ack="fsync").push("c")
            assert not daemon.seen
        (seen,) = daemon.seen
        assert (seen.query, [job.get("job_id") for job in seen.body]) == (
            {"ack": "store", "atomic": "1"},
            [None, "mine"],
        )
        assert [ref.job_id for ref in batch.refs] == [one.job_id, two.job_id] == ["job-1", "mine"]
        with pytest.raises(RuntimeError, match="used before"):
            async with batch:
                tell.push("twice")
        async with app.batch():
            pass
        with pytest.raises(KeyError):
            await leave(app)
        assert len(daemon.seen) == 1, "nothing, and a block that raises, send nothing"
        app.client.close()


async def test_a_batch_says_what_was_there_before_and_what_was_refused() -> None:
    async with open_daemon() as daemon:
        app = an_app(daemon)
        tell = app.jobs["tell"]
        daemon.script("POST", "/v1/jobs", Answer(201, {"job_ids": ["x", "y"], "ack": "fsync", "duplicates": ["y"]}))
        async with app.batch() as batch:
            tell.push("a")
            tell.options(id="y").push("b")
        assert [ref.duplicate for ref in batch.refs] == [False, True]
        errors = [{"detail": "other content", "index": 0}]
        daemon.script("POST", "/v1/jobs", Answer(201, {"job_ids": [None, "y"], "ack": "fsync", "errors": errors}))
        batch = app.batch()
        with pytest.raises(PartlyPushed, match="other content"):
            await push_two(app, batch)
        assert batch.refs[1].job_id == "y"
        daemon.script("POST", "/v1/jobs", Answer(200, {"job_id": "y", "duplicate": True}))
        assert (await tell.options(id="y").apush("b")).duplicate
        app.client.close()


async def test_an_app_says_its_token_and_waits_as_long_as_it_is_told() -> None:
    async with open_daemon() as daemon:
        app = App(["http://127.0.0.1:9", daemon.url], token="secret", timeout="300ms")
        push = app.job(an_app(daemon).jobs["tell"].function)
        await push.apush("a")
        assert daemon.seen[0].headers["authorization"] == "Bearer secret"
        app.client.close()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        app = App(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(TimedOut, match=r"did not answer within 0.05 s"):
            app.job(push.function).push("a")
        app.client.close()
