"""Jobs in a request to somebody's own program: who may send them, and what is answered."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import anyio
import msgspec
import pytest
from flask import Flask

import jqd
from jqd.contrib.flask import blueprint
from jqd.contrib.mount import BODY_BYTES_MAX, Answer, Mount, register
from jqd.domain.errors import ConfigError
from jqd.domain.signature import signature
from jqd.runner.protocols.native import Native
from jqd.runner.protocols.protocol import Judgement
from jqd.testing.clock import ManualClock
from jqd.worker import attempt
from jqd.worker.refusal import RETRY_AFTER_S

OLD, NEW, OTHER = (f"whsec_{letter * 32}" for letter in "abc")
JSON = {"content-type": "application/json"}


class Follower:
    def following(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        return {"name": "next"}


async def odd() -> object:
    jqd.current().push(Follower())
    return object()


def app() -> jqd.App:
    found = jqd.App(loop="trio")
    found.job(keep_result=True)(odd)

    @found.job
    def double(number: int) -> int:
        return 2 * number

    @found.job
    async def triple(number: int) -> int:
        jqd.current().push(double.options(tags=["t"]), number=number)
        return 3 * number

    @found.job(loop="asyncio")
    async def slow() -> None:
        import asyncio

        await asyncio.sleep(60)

    return found


def batch(*jobs: tuple[str, Any], timeout: float = 30.0) -> bytes:
    each = [{"job_id": str(number), "name": name, "argument": given} for number, (name, given) in enumerate(jobs)]
    return msgspec.json.encode({"jobs": [job | {"timeout": timeout} for job in each]})


async def whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


def outcomes(answer: Answer) -> list[Any]:
    assert (answer.status, answer.content_type) == (200, "application/json")
    return [each.get("result", each.get("error")) for each in msgspec.json.decode(answer.body)]


@pytest.mark.parametrize(
    ("signed_with", "age_s", "changed", "is_taken"),
    [
        ([NEW], 0, b"", True),
        ([OTHER, OLD], -299, b"", True),
        ([OTHER], 0, b"", False),
        ([NEW], 0, b" ", False),
        ([NEW], 300, b"", False),
        ([NEW], -300, b"", False),
        ([], 0, b"", False),
    ],
)
def test_only_what_a_daemon_signed_lately_is_taken(
    signed_with: list[str], age_s: int, changed: bytes, is_taken: bool
) -> None:
    clock = ManualClock()
    mount, body = Mount(app(), secret=[OLD, NEW], clock=clock), batch(("double", {"number": 4}))
    headers = JSON | dict(signature(signed_with, "batch-1", clock.wall_ms() // 1000 - age_s, body))
    answer = mount.answer(headers, [body + changed])
    assert Native().judge(answer.status) is (Judgement.READ if is_taken else Judgement.BACK_OFF)
    assert answer.headers == ({} if is_taken else {"retry-after": str(RETRY_AFTER_S)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "-" + "9" * 4300},
        {"webhook-timestamp": "now"},
        {"webhook-signature": "v1,\udcff"},
        {"webhook-id": "\udcff"},
    ],
)
def test_what_a_visitor_sends_without_a_key_is_refused_whatever_it_is(wrong: dict[str, str]) -> None:
    clock = ManualClock()
    mount, body = Mount(app(), secret=NEW, clock=clock), batch(("double", {"number": 4}))
    headers = JSON | dict(signature([NEW], "batch-1", clock.wall_ms() // 1000, body)) | wrong
    assert mount.answer(headers, [body]).status == 503


@pytest.mark.parametrize("secret", ["", "abc", "whsec_", "whsec_?", ["whsec_YQ==", "no"]])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"a secret is whsec_ and 24 to 64 bytes in base64; make one with: echo"):
        Mount(app(), secret=secret)


def test_in_a_thread_functions_of_all_kinds_run() -> None:
    mount = Mount(app(), secret=None)
    body = batch(
        *(("double", {"number": 4}), ("triple", {"number": 4}), ("slow", None), ("quadruple", None), ("odd", None)),
        timeout=0.5,
    )
    answer = mount.answer(JSON, [body])
    unknown, *ended, unsendable = outcomes(answer)
    assert (unknown, ended) == ("unknown job name", [8, 12, "timeout"])
    assert "object" in unsendable
    follows = [{"name": "double", "argument": {"number": 4}, "tags": ["t"]}]
    jobs = [each.get("jobs") for each in msgspec.json.decode(answer.body)]
    assert jobs == [None, None, follows, None, None], "nothing follows a failure"
    for headers, wrong, status in [({}, body, 415), (JSON, b"[]", 400)]:
        told = mount.answer(headers, [wrong])
        assert (told.status, told.content_type) == (status, "application/problem+json")


async def test_in_a_loop_what_was_written_for_another_is_refused_with_a_word() -> None:
    mount = Mount(app(), secret=None)
    body = batch(("double", {"number": 4}), ("triple", {"number": 4}))
    assert outcomes(await mount.aanswer(JSON, whole(body))) == [8, 12]
    told = msgspec.json.decode((await mount.aanswer(JSON, whole(batch(("slow", None), timeout=0.05)))).body)
    assert told["status"] == 500
    assert (
        told["detail"] == "job 'slow' is declared for asyncio, and this server runs trio: declare it with loop='trio'"
    )


LEAVING = jqd.App(loop="asyncio")


@LEAVING.job
async def leave() -> None:
    raise SystemExit(3)


@LEAVING.job(keep_result=True)
async def stops_its_tasks() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 60)
        await anyio.sleep(0.001)
        group.start_soon(anyio.sleep, 60)
        group.cancel_scope.cancel()
    return "anyio asks tasks how they are"


@LEAVING.job
async def cancelled_below() -> None:
    below = asyncio.ensure_future(asyncio.sleep(60))
    below.cancel()
    await below


@LEAVING.job
async def stay() -> None:
    await anyio.sleep(60)


LEAVING.job(name="stay under trio", loop="trio")(stay.function)


def test_no_job_ends_the_program_that_it_is_mounted_in() -> None:
    mount, body = (
        Mount(LEAVING, secret=None),
        batch(("leave", None), ("cancelled_below", None), ("stops_its_tasks", None)),
    )
    expected = ["SystemExit: 3", "CancelledError", "anyio asks tasks how they are"]
    assert outcomes(mount.answer(JSON, [body])) == expected
    assert outcomes(anyio.run(mount.aanswer, JSON, whole(body))) == expected


@pytest.mark.parametrize(("name", "backend"), [("stay", "asyncio"), ("stay under trio", "trio")])
def test_a_request_that_is_cancelled_ends_its_job(name: str, backend: str) -> None:
    mount, body = Mount(LEAVING, secret=None), msgspec.json.encode({"jobs": [{"job_id": "a", "name": name}]})

    async def cancel() -> bool:
        with anyio.move_on_after(0.01) as scope:
            await mount.aanswer(JSON, whole(body))
        return scope.cancelled_caught

    async def cancel_task() -> bool:
        task = asyncio.ensure_future(mount.aanswer(JSON, whole(body)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert anyio.run(cancel, backend=backend)
    assert backend == "trio" or anyio.run(cancel_task)


def test_an_app_without_jobs_is_not_registered() -> None:
    with pytest.raises(ConfigError, match="the app has no jobs; was their module imported"):
        register(jqd.App(), "http://127.0.0.1:1/jqd", secret=None)


class Small:
    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": batch(("double", None)), "more_body": False}


class Endless:
    """A body that never ends, and how much of it was taken."""

    taken = 0

    def read(self, size: int = -1) -> bytes:
        assert 0 <= size <= BODY_BYTES_MAX, "somebody reads it whole"
        assert self.taken <= 2 * BODY_BYTES_MAX, "nobody stops"
        self.taken += size
        return b" " * size

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": self.read(1 << 20), "more_body": True}


async def asked(length: str | None, body: "Endless | Small") -> dict[str, Any]:
    """What the problem is that an application of FastAPI answers with."""
    from fastapi import FastAPI  # here: each process of the tests would read half a second, and one runs this

    from jqd.contrib.fastapi import router

    web, told = FastAPI(), []
    web.include_router(router(app(), secret=NEW), prefix="/jqd")

    async def send(message: Any) -> None:
        told.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/jqd", "raw_path": b"/jqd", "root_path": "",
        "scheme": "http", "query_string": b"", "headers": [(b"content-length", length.encode())] if length else [],
    }  # fmt: skip
    await web(scope, body.receive, send)
    return cast("dict[str, Any]", msgspec.json.decode(told[1]["body"])) | {"headers": dict(told[0]["headers"])}


@pytest.mark.parametrize("length", [None, str(BODY_BYTES_MAX + 1), "9" * 5000])
async def test_more_than_a_job_can_be_is_read_by_no_framework(length: str | None) -> None:
    web = Flask(__name__)
    web.register_blueprint(blueprint(app(), secret=NEW), url_prefix="/jqd")
    thread, task = Endless(), Endless()
    told_of = {"wsgi.input": thread, "wsgi.input_terminated": True}  # as servers have it where the body comes in chunks
    told_of |= {"CONTENT_LENGTH": length} if length else {}
    by_flask = web.test_client().post("/jqd", environ_overrides=told_of)
    for told in (msgspec.json.decode(by_flask.data), await asked(length, task)):
        assert (told["status"], told["title"]) == (413, "Batch too large")
        assert f"{BODY_BYTES_MAX} bytes" in told["detail"]
    for body in (thread, task):
        assert body.taken <= (0 if length else BODY_BYTES_MAX + (1 << 20))


async def test_while_a_secret_or_a_clock_is_wrong_jobs_wait_behind_each_framework() -> None:
    """A 403 failed them for good, all that came meanwhile: a request has one job, so nothing shared the blame."""
    web = Flask(__name__)
    web.register_blueprint(blueprint(app(), secret=NEW), url_prefix="/jqd")
    by_flask = web.test_client().post("/jqd", data=batch(("double", None)), headers=JSON)
    by_fastapi = await asked(None, Small())
    assert (by_flask.status_code, by_flask.headers["retry-after"]) == (503, str(RETRY_AFTER_S))
    assert (by_fastapi["status"], by_fastapi["headers"][b"retry-after"]) == (503, b"%d" % RETRY_AFTER_S)


class Span:
    """The span of an attempt."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def fail(self, why: str, error: BaseException | None = None) -> None:
        self.said.append(why)

    def end(self) -> None:
        self.said.append("end")


@pytest.mark.parametrize(
    ("name", "timeout", "said"),
    [
        ("double", 30, ["end"]),
        ("triple", 30, ["end"]),
        ("odd", 30, ["Unsendable", "end"]),
        ("slow", 0.05, ["timeout", "end"]),
    ],
)
def test_the_span_of_an_attempt_ends_with_it(
    name: str, timeout: float, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    span = Span()
    monkeypatch.setattr(attempt, "SDK", "sys")
    monkeypatch.setattr(attempt, "processing", lambda *_: span)
    given = {"number": 4} if name in ("double", "triple") else None
    Mount(app(), secret=None).answer(JSON, [batch((name, given), timeout=timeout)])
    assert span.said == said
