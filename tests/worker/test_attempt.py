"""How attempts end: every way a function may return or raise, in threads and as tasks."""

import asyncio
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest
import trio

from jqd import App, Cancelled, Context, Failed, Retry, Snooze, current
from jqd.domain.job import TIMEOUT_S_MAX
from jqd.worker.service import Service, ServiceConfig
from jqd.worker.wire import ERROR_BYTES_MAX, ERROR_CHARS_MAX, MESSAGE_CHARS_MAX, OUTCOME_BYTES_MAX
from tests.worker.exchange import Exchange, packed, run_batch


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class OddExit(Exception):
    def __str__(self) -> str:
        sys.exit("while it is read")


class Missing(Failed):
    """Of a job's author, who does not call what he inherits from."""

    def __init__(self, path: str) -> None:
        self.path = path


class Busy(Retry):
    def __init__(self, host: str) -> None:
        self.host = host


class OddFailed(Failed):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unreadable(Failed):
    def __getattribute__(self, name: str) -> Any:
        if name == "error":
            raise RuntimeError("no error")
        return super().__getattribute__(name)


class Base(BaseException):
    """As asyncio's CancelledError and gevent's Timeout are."""


class Point(msgspec.Struct):
    x: int


class Follower:
    def following(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        return {"name": "next", "argument": msgspec.Raw(msgspec.msgpack.encode([*args]))}


follower = Follower()


def ending(argument: Any, /) -> Any:
    """Ends as the argument says."""
    match argument:
        case {"return": value}:
            return value
        case ["and then", rest]:
            current().push(follower, 7)
            return ending(rest)
        case "struct":
            return Point(3)
        case "object":
            return object()
        case "deep object":
            return {"count": 1, "rows": [1, object()]}
        case "int too big":
            return 2**70
        case "huge":
            return bytes(OUTCOME_BYTES_MAX)
        case "retry":
            raise Retry
        case "retry after":
            raise Retry(after=7.5, message="the printer is busy")
        case "snooze":
            raise Snooze("2m", "the bank is closed")
        case "failed":
            raise Failed("no such file")
        case "failed with error":
            raise Failed("no such file", error={"path": "a"})
        case "failed with much error":
            raise Failed("y" * 100_000, error=bytes(ERROR_BYTES_MAX))
        case "failed with odd error":
            raise Failed("no such file", error=object())
        case "missing":
            raise Missing("/a")
        case "busy":
            raise Busy("printer")
        case "odd failed":
            raise OddFailed("no such file")
        case "unreadable":
            raise Unreadable("no such file")
        case "exit":
            sys.exit("leaving")
        case "interrupt":
            raise KeyboardInterrupt("by itself")
        case "base":
            raise Base("of a library")
        case "odd":
            raise Odd
        case "cancelled":
            raise Cancelled("half way")
        case "odd exit":
            raise OddExit
        case "surrogate":
            raise ValueError("\ud800 alone")
        case "long":
            raise ValueError("x" * 100_000)
        case "group":
            raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
    raise ValueError(f"unknown: {argument}")


def ending_in_group(argument: Any, depth: int) -> None:
    try:
        ending(argument)
    except Exception as error:  # noqa: BLE001 - as a nursery does
        group = ExceptionGroup("of one", [error])
        raise (group if depth == 1 else ExceptionGroup("of a group", [group])) from None


app = App()
app.job("plain")(ending)
app.job("plain in a group")(ending_in_group)


@app.job("async in a group")
async def ending_in_nursery(argument: Any, depth: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        if depth == 1:
            nursery.start_soon(ending_async, argument)
        else:
            nursery.start_soon(ending_in_nursery, argument, depth - 1)


@app.job("asyncio in a group", loop="asyncio")
async def ending_in_task_group(argument: Any, depth: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(3_600))
        if depth == 1:
            group.create_task(ending_asyncio(argument))
        else:
            group.create_task(ending_in_task_group(argument, depth - 1))


@app.job("async")
async def ending_async(argument: Any, /) -> Any:
    await trio.lowlevel.checkpoint()
    if argument == "hang":
        await trio.sleep_forever()
    return ending(argument)


@app.job("asyncio", loop="asyncio")
async def ending_asyncio(argument: Any, /) -> Any:
    return ending(argument)


both = pytest.mark.parametrize("name", ["plain", "async"])


async def end(name: str, argument: Any, **fields: Any) -> dict[str, Any]:
    exchange = await run_batch(app, {"job_id": "a", "name": name, "argument": argument, **fields})
    assert exchange.status == 200
    (outcome,) = [each for each in exchange.body if each["type"] != "started"]  # a busy machine may be slow to start
    assert outcome["job_id"] == "a"
    datetime.fromisoformat(outcome["finished_at"])
    return dict(outcome)


@both
@pytest.mark.parametrize("value", [None, 0, "text", b"bytes", [1, {"a": None}], {"k": [True, 1.5]}])
async def test_values_go_through_unchanged(name: str, value: Any) -> None:
    outcome = await end(name, {"return": value})
    assert (outcome["type"], outcome["result"]) == ("success", value)


@both
async def test_structs_are_results_too(name: str) -> None:
    assert (await end(name, "struct"))["result"] == {"x": 3}


@both
@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("object", "its result cannot be encoded: Encoding objects of type object is unsupported"),
        ("deep object", "its result cannot be encoded: Encoding objects of type object is unsupported"),
        ("int too big", "its result cannot be encoded: "),
    ],
)
async def test_a_result_that_cannot_be_sent_is_final_and_says_so(name: str, argument: str, says: str) -> None:
    outcome = await end(name, argument)
    assert (outcome["type"], outcome["reason"], outcome["should_retry"]) == ("failure", "other", False)
    assert says in outcome["message"]
    assert outcome.get("status") is None


@both
async def test_of_a_result_that_is_too_large_its_size_is_sent(name: str) -> None:
    outcome = await end(name, "huge")
    assert (outcome["type"], outcome["result"]) == ("success", None)
    assert outcome["result_bytes"] > OUTCOME_BYTES_MAX


@pytest.mark.parametrize("name", ["plain", "async", "asyncio"])
async def test_what_is_to_follow_is_told_with_the_success_and_only_when_its_result_can_be_sent(name: str) -> None:
    for argument, kind, jobs in (
        ("object", "failure", None),
        ("huge", "success", [{"name": "next", "argument": [7]}]),
        ({"return": 1}, "success", [{"name": "next", "argument": [7]}]),
    ):
        outcome = await end(name, ["and then", argument])
        assert (outcome["type"], outcome.get("jobs")) == (kind, jobs)


@both
@pytest.mark.parametrize("argument", ["object", "int too big", "huge", {"return": "small"}])
async def test_a_result_that_nobody_wants_is_not_sent(name: str, argument: Any) -> None:
    outcome = await end(name, argument, keep_result=False)
    assert (outcome["type"], outcome["result"]) == ("success", None)


@both
async def test_retry_asks_for_another_attempt(name: str) -> None:
    outcome = await end(name, "retry")
    assert (outcome["type"], outcome["should_retry"], "retry_after" in outcome) == ("failure", True, False)
    outcome = await end(name, "retry after")
    assert (outcome["should_retry"], outcome["retry_after"]) == (True, 7.5)
    assert outcome["message"] == "the printer is busy"


@both
async def test_snooze_puts_the_job_off(name: str) -> None:
    outcome = await end(name, "snooze")
    del outcome["finished_at"]
    assert outcome == {"type": "snooze", "job_id": "a", "message": "the bank is closed", "retry_after": 120.0}


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan")])
def test_retry_and_snooze_take_seconds_only(after: float) -> None:
    for kind in (Retry, Snooze):
        with pytest.raises(ValueError, match="seconds from now"):
            kind(after=after)


@both
@pytest.mark.parametrize(
    ("argument", "error"),
    [("failed", "no such file"), ("failed with error", {"path": "a"})],
)
async def test_failed_is_final(name: str, argument: str, error: Any) -> None:
    outcome = await end(name, argument)
    assert (outcome["should_retry"], outcome["error"], outcome["message"]) == (False, error, "no such file")


@both
async def test_an_error_value_that_cannot_be_encoded_is_told_as_text(name: str) -> None:
    outcome = await end(name, "failed with odd error")
    assert outcome["should_retry"] is False
    assert outcome["error"] == "a value of type object"
    assert "cannot be encoded" in outcome["message"]


@both
@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("nothing known", "ValueError: unknown: nothing known"),
        ("exit", "SystemExit: leaving"),
        ("interrupt", "KeyboardInterrupt: by itself"),
        ("base", "Base: of a library"),
        ("odd", "Odd: (its text cannot be read)"),
        ("odd exit", "OddExit: (its text cannot be read)"),
        ("surrogate", "ValueError: \\ud800 alone"),
        ("group", "ExceptionGroup: two (2 sub-exceptions)"),
    ],
)
async def test_raising_is_a_failure_with_its_traceback(name: str, argument: str, error: str) -> None:
    outcome = await end(name, argument)
    assert (outcome["type"], outcome["reason"], outcome["should_retry"]) == ("failure", "other", True)
    assert outcome["error"] == error
    assert "Traceback" in outcome["message"]
    assert "in ending" in outcome["message"]
    assert "attempt.py" not in outcome["message"].partition("test_attempt.py")[0]


@both
async def test_texts_are_bounded(name: str) -> None:
    outcome = await end(name, "long")
    assert len(outcome["error"]) == ERROR_CHARS_MAX
    assert len(outcome["message"]) == MESSAGE_CHARS_MAX
    outcome = await end(name, "failed with much error")
    assert outcome["error"] == "a value of type bytes"
    assert outcome["message"].startswith("y" * MESSAGE_CHARS_MAX + " (its error value has 65")


async def test_the_context_tells_about_the_attempt() -> None:
    app, seen = App(), list[Context]()

    @app.job()
    def look(argument: object, /) -> bool:
        context = current()
        seen.append(context)
        return context.is_last

    job = {"id": "only-id", "name": "look", "attempt": 2, "max_retry": 2, "timeout": 60}
    exchange = await run_batch(app, job, {**job, "id": "b", "attempt": 3})
    assert {key: outcome["result"] for key, outcome in exchange.by_id.items()} == {"only-id": False, "b": True}
    context = next(each for each in seen if each.job_id == "only-id")
    assert (context.name, context.attempt, context.max_retry) == ("look", 2, 2)
    left_s = (context.deadline - datetime.now(context.deadline.tzinfo)).total_seconds()
    assert 50 < left_s <= 60


async def test_a_job_without_parameter_takes_no_argument() -> None:
    app = App()
    ran = []

    @app.job()
    def tick() -> None:
        ran.append(1)

    exchange = await run_batch(app, {"job_id": "a", "name": "tick"}, {"job_id": "b", "name": "tick", "argument": 0})
    assert exchange.by_id["a"]["type"] == "success"
    assert exchange.by_id["b"]["should_retry"] is False
    assert "takes no argument" in exchange.by_id["b"]["message"]
    assert ran == [1]


async def test_an_argument_that_cannot_be_decoded_fails_its_own_job_only() -> None:
    app = App()
    app.job("echo")(lambda argument, /: argument)
    good, bad = {"job_id": "good", "name": "echo", "argument": 1}, {"job_id": "bad", "name": "echo", "argument": "?"}
    body = packed(bad, good).replace(b"\xa1?", b"\xa1\xff")  # no UTF-8
    service = app.asgi
    exchange = await Exchange(service, body).run()
    service.close()
    assert exchange.by_id["good"]["result"] == 1
    assert exchange.by_id["bad"]["type"] == "failure"


async def test_an_async_job_is_cancelled_at_its_timeout_and_others_go_on() -> None:
    app, ended = App(), []

    @app.job()
    async def wait(argument: object, /) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(argument)

    @app.job()
    async def quick(argument: object, /) -> str:
        return "done"

    jobs: list[dict[str, Any]] = [
        {"job_id": "slow", "name": "wait", "argument": 1, "timeout": 0.02},
        {"job_id": "q", "name": "quick"},
    ]
    exchange = await run_batch(app, *jobs, config=ServiceConfig(concurrency=1))
    slow = exchange.by_id["slow"]
    assert (slow["type"], slow["reason"], slow["should_retry"]) == ("failure", "timeout", True)
    assert slow["message"] == "the job did not end within its timeout of 0.02 s", (
        "no id: alike ones are counted together"
    )
    assert exchange.by_id["q"]["result"] == "done"
    assert ended == [1]


@pytest.mark.parametrize("timeout", [0, -1, TIMEOUT_S_MAX + 1, 1e308, float("inf"), float("nan")])
async def test_a_timeout_that_no_daemon_can_mean_is_refused(timeout: float) -> None:
    exchange = await run_batch(app, {"job_id": "a", "name": "plain", "timeout": timeout})
    assert exchange.status == 400
    assert f"Expected `float` {'<=' if timeout > TIMEOUT_S_MAX else '>'}" in exchange.body["detail"]
    assert exchange.body["detail"].count("`$.jobs[0].timeout`") == 1


@both
@pytest.mark.parametrize("where", ["began", "succeeded"])
async def test_what_goes_wrong_beside_a_function_fails_its_job_and_takes_no_thread(
    name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, one = Service(app.jobs, ServiceConfig(concurrency=1)), {"name": name, "argument": {"return": 1}}
    with monkeypatch.context() as patch:
        patch.setattr(service.attempts.lines, where, lambda item: 1 / 0)
        exchange = await run_batch(service, {"job_id": "a", **one}, {"job_id": "b", **one})
        assert {outcome["error"] for outcome in exchange.body} == {"ZeroDivisionError: division by zero"}
        assert len(exchange.body) == 2
    assert (await run_batch(service, {"job_id": "c", **one})).by_id["c"]["result"] == 1
    service.close()


async def test_without_a_timeout_it_is_the_default() -> None:
    app, deadlines = App(), []

    @app.job()
    async def look(argument: object, /) -> None:
        deadlines.append(trio.current_effective_deadline() - trio.current_time())

    await run_batch(app, {"job_id": "a", "name": "look", "timeout": None})
    assert 20 < deadlines[0] <= 30


@both
@pytest.mark.parametrize(
    ("argument", "error", "retried"),
    [
        ("missing", "/a", False),
        ("busy", "retry", True),
        ("odd failed", "(its text cannot be read)", False),
        ("unreadable", "Unreadable: no such file", True),
    ],
)
async def test_what_an_author_derives_from_ours_ends_its_own_job_alone(
    name: str, argument: str, error: str, retried: bool
) -> None:
    outcome = await end(name, argument)
    assert (outcome["type"], outcome["reason"]) == ("failure", "other")
    assert (outcome["error"], outcome["should_retry"]) == (error, retried)


@pytest.mark.parametrize("name", ["plain", "async", "asyncio"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    "argument",
    ["retry after", "snooze", "failed with error", "missing", "busy", "cancelled", "odd failed", "?", "group"],
)
async def test_what_one_task_of_a_job_raises_counts_as_raised_by_the_job(name: str, depth: int, argument: str) -> None:
    bare = await end(name, argument)
    grouped = await end(f"{name} in a group", {"argument": argument, "depth": depth})
    for each in (bare, grouped):
        del each["finished_at"]
    if "Traceback" in bare["message"]:
        assert "ending_in" in grouped["message"], "the group's traceback, with the way to the task"
        bare["message"] = grouped["message"]
    assert grouped == bare
