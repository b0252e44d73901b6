"""The declaration as type checkers see it: what they take is written plainly, what they refuse has an ignore.

mypy runs over this file with all others (strict, and an ignore that is not needed is an error), so `make check` shows
that a wrong argument is refused; the calls run here as well.
"""

from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import assert_type

import pytest

import jqd

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
        assert not app.gathers


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
