"""The declaration as type checkers see it: what they take is written plainly, what they refuse has an ignore.

mypy runs over this file with all others (strict, and an ignore that is not needed is an error), so `make check` shows
that a wrong argument is refused; the calls run here as well.
"""

from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import assert_type

import pytest

import jqd
from jqd import after, chain, group
from jqd.worker.steps import Signature, Step

app = jqd.App("http://127.0.0.1:9")


@app.job(timeout="20s", max_retry=5, keep_result=True)
def send(to: str, subject: str = "", *cc: str) -> int:
    return len(to) + len(subject) + len(cc)


@app.job
def tick() -> None: ...


@app.job(loop="asyncio")
async def fetch(url: str) -> bytes:
    return url.encode()


@app.job
async def bare(url: str) -> bytes:
    return url.encode()


@contextmanager
def unsent() -> Generator[None]:
    """Nothing is pushed: the block of a batch that raises."""
    try:
        with app.batch():
            yield
            raise KeyError
    except KeyError:
        assert not app.keeps_pushes


def test_right_calls_keep_the_types_of_the_function() -> None:
    assert_type(send("ann", "hi", "bob"), int)
    with unsent():
        ref = assert_type(send.push("ann", subject="hi"), jqd.Ref[int])
        assert_type(send.delay("ann"), jqd.Ref[int])
        assert_type(send.enqueue("ann", "hi", "bob"), jqd.Ref[int])
        assert_type(send.options(delay="5m", id="o-17", tags=["x"]).push("ann"), jqd.Ref[int])
        assert_type(send.options(backoff=["1s", 60.0]).push("ann"), jqd.Ref[int])
        assert_type(fetch.push("http://a"), jqd.Ref[bytes])
        assert_type(bare.push("http://a"), jqd.Ref[bytes])
        assert_type(tick.push(), jqd.Ref[None])
    with pytest.raises(RuntimeError, match="no id yet"):
        assert_type(ref.result(wait="1s"), int)


def coroutines() -> tuple[Awaitable[bytes], Awaitable[bytes], Awaitable[jqd.Ref[int]]]:
    """Never awaited: for type checkers only."""
    return fetch("a"), bare("a"), send.apush("ann")


def test_wrong_calls_are_refused_by_type_checkers_and_by_push() -> None:
    with unsent():
        with pytest.raises(TypeError):
            send.push(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            send.push()  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            send.push("ann", subjekt="hi")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            send.options(priority=1).push("ann", 4)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            tick.push(1)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            send.options(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        app.job(colour="red")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        app.buffer(colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="not 'eager'"):
        app.testing("eager")  # type: ignore[arg-type]


@app.job
def double(number: int) -> int:
    return 2 * number


@app.job
def total(numbers: list[int]) -> str:
    return str(sum(numbers))


@app.job
def lenient(numbers: list[int | None], /) -> int:
    return len(numbers)


def test_right_steps_keep_the_types_of_their_functions() -> None:
    assert_type(double.s(1), Signature[object, int])
    assert_type(double.s(), Signature[int, int])
    assert_type(fetch.s(), Signature[str, bytes])
    assert_type(send.s(subject="hi"), Signature[str, int])
    assert_type(double.s().set(delay="5m"), Signature[int, int])
    assert_type(chain(double.s(1), double.s(), double.s()), Step[object, int])
    assert_type(group(double.s(1), double.s(2)).then(total.s()), Step[object, str])
    assert_type(group(double.s(1)).then(lenient.s()), Step[object, int])
    assert_type(double.s(1).then(group(double.s(), double.s())), Step[object, list[int]])
    with app.testing("inline") as trial:
        ref = assert_type(chain(double.s(1), double.s()).push(trial.client), jqd.FlowRef[int])
        assert_type(group(double.s(1)).push(), jqd.FlowRef[list[int]])
        assert_type(after(double.push(1)).then(total.s()), Step[object, str])
        assert_type(ref.flow().jobs[0].job_id, str)


async def awaited() -> tuple[int, list[int]]:
    """Never awaited: for type checkers only."""
    return await (await chain(double.s(1), double.s()).apush()), await group(double.s(1)).push()


def test_wrong_steps_are_refused_by_type_checkers() -> None:
    double.s(1).then(fetch.s())  # type: ignore[arg-type]
    chain(double.s(1), double.s(), fetch.s())  # type: ignore[misc]
    group(double.s(1)).then(double.s())  # type: ignore[arg-type]
    after("id").then(total.s())
    with pytest.raises(TypeError):
        double.s("x")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        send.s(colour="red")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        double.s().push()  # type: ignore[misc]
    with pytest.raises(TypeError):
        double.s(1).set(colour="red")  # type: ignore[call-arg]
