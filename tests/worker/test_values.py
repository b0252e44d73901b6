"""Wherever a job's function hands a value of its own to the worker, any kind of value ends that job alone."""

import asyncio
import enum
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import trio

from jqd import App, Cancelled, Failed, Retry, Snooze, current
from jqd.worker import frames
from jqd.worker.attempt_output import AttemptOutput
from jqd.worker.context import PROGRESS_LENGTH_MAX
from jqd.worker.service import Service, ServiceConfig
from tests.worker.exchange import run_batch


class Float(float):
    """As numpy.float64 is."""


class Int(int): ...


class Text(str): ...


class Half(enum.Enum):
    HALF = 0.5


class Share(float, enum.Enum):
    HALF = 0.5


class Odd:
    """Raises what `raises` says, whatever it is asked for."""

    def __init__(self, raises: BaseException) -> None:
        self._raises = raises

    def __float__(self) -> float:
        raise self._raises

    def __le__(self, other: object) -> bool:
        raise self._raises

    __ge__ = __lt__ = __gt__ = __le__

    def __str__(self) -> str:
        raise self._raises

    __repr__ = __str__


class OddError(Exception):
    def __init__(self, value: object) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)


TWO_HOURS: list[Any] = [
    *(7200, 7200.0, Float(7200), Fraction(7200), Decimal(7200), timedelta(hours=2), "2h", Text("2h")),
]
VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 0.5, 1.5, float("nan"), float("inf"), 10**400, 2**63),
    *(Float(0.5), Float("nan"), Int(1), Fraction(1, 2), Decimal("0.5"), Decimal("nan"), 1j, Half.HALF, Share.HALF),
    *("0.5", "1h", "", "x" * 100_000, Text("1m"), "\ud800" * 300, "\0", b"0.5", b"\xff", [0.5], [], {"a": Float(1)}),
    *(object(), int, Odd(ValueError("odd")), Odd(SystemExit("odd")), Odd(KeyboardInterrupt())),
    *TWO_HOURS,
]


def derived(base: type[Retry | Snooze], value: Any) -> BaseException:
    """Return an exception of a class whose author does not call the inherited __init__."""
    error: BaseException = type("Derived", (base,), {"after": value, "__init__": lambda self: None})()
    return error


def throw(error: BaseException) -> Any:
    raise error


def follow(**options: Any) -> None:
    current().push(next_job.options(**options))


WAYS: dict[str, Callable[[Any], Any]] = {
    "progress": lambda value: current().progress(value),
    "progress message": lambda value: current().progress(message=value),
    "log": lambda value: current().log(value),
    "print": print,
    "return": lambda value: value,
    "follower delay": lambda value: follow(delay=value),
    "follower tags": lambda value: follow(tags=[value]),
    "retry": lambda value: throw(Retry(value)),
    "retry message": lambda value: throw(Retry(message=value)),
    "snooze": lambda value: throw(Snooze(value)),
    "snooze message": lambda value: throw(Snooze(1, value)),
    "failed": lambda value: throw(Failed(value)),
    "failed error": lambda value: throw(Failed("m", value)),
    "cancelled": lambda value: throw(Cancelled(value)),
    "derived retry": lambda value: throw(derived(Retry, value)),
    "derived snooze": lambda value: throw(derived(Snooze, value)),
    "error": lambda value: throw(ValueError(value)),
    "odd error": lambda value: throw(OddError(value)),
    "exit": lambda value: throw(SystemExit(value)),
}
KINDS = ["plain", "async", "asyncio"]

app = App()
outputs: list[AttemptOutput] = []


@app.job("next")
def next_job() -> None: ...


def hand(way: str, index: int) -> Any:
    outputs.append(current().output)
    return WAYS[way](VALUES[index])


app.job("plain")(hand)


@app.job("async")
async def hand_async(way: str, index: int) -> Any:
    await trio.lowlevel.checkpoint()
    return hand(way, index)


@app.job("asyncio", loop="asyncio")
async def hand_asyncio(way: str, index: int) -> Any:
    await asyncio.sleep(0)
    return hand(way, index)


async def end(kind: str, way: str, indices: Iterable[int]) -> list[dict[str, Any]]:
    """Run a job for each of these VALUES, one after the other: a thread that one takes along is missed by the next."""
    service = Service(app.jobs, ServiceConfig(concurrency=1))
    jobs = [{"job_id": f"{n}", "name": kind, "argument": {"way": way, "index": n}} for n in indices]
    with trio.fail_after(60):
        exchange = await run_batch(service, *jobs)
    service.close()
    ends = {one["job_id"]: one for one in exchange.body if one["type"] != "started"}
    return [ends[job["job_id"]] for job in jobs]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
async def test_any_value_ends_its_own_job_alone(kind: str, way: str) -> None:
    outputs.clear()
    ends = await end(kind, way, range(len(VALUES)))
    assert {one["type"] for one in ends} <= {"success", "failure", "snooze"}
    assert len(outputs) == len(VALUES)
    for output in outputs:  # as they are sent to the main process, and to a daemon
        done, message = output.far or (None, "")
        frame = msgspec.msgpack.encode(frames.Spoke(1, 0, output.log()[1], True, done, message))
        told = msgspec.msgpack.decode(frame, type=frames.ToFront)
        assert isinstance(told, frames.Spoke)
        assert told.done is None or 0 <= told.done <= 1
        assert len(told.message) <= PROGRESS_LENGTH_MAX


@pytest.mark.parametrize("way", ["retry", "snooze", "derived retry", "derived snooze", "follower delay"])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_of_number_or_text_says_how_long(kind: str, way: str) -> None:
    spans = range(len(VALUES) - len(TWO_HOURS), len(VALUES))
    ends = await end(kind, way, spans)
    told = [one["jobs"][0]["delay"] if way.startswith("follower") else one["retry_after"] for one in ends]
    assert told == [7200.0] * len(spans)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_no_follower_can_have_is_raised_where_it_is_given(kind: str) -> None:
    (ended,) = await end(kind, "follower tags", [next(n for n, each in enumerate(VALUES) if isinstance(each, Text))])
    assert (ended["type"], ended["error"]) == ("failure", "TypeError: Encoding objects of type Text is unsupported")
    assert "in follow" in ended["message"]
