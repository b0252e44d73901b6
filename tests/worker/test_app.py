"""Job functions: what may be one, how it is called, and what `push` sends."""

from typing import TYPE_CHECKING, Any

import pytest
import trio

from jqd.client import Client
from jqd.testing.daemon import open_daemon
from jqd.worker import App, Context

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


def test_a_job_is_still_the_function_it_was() -> None:
    app = App()

    @app.job()
    def double(number: int, times: int = 2) -> int:
        """Twice as much."""
        return number * times

    assert double(4) == 8
    assert double(4, times=3) == 12
    assert (double.name, double.__name__, double.__doc__) == ("double", "double", "Twice as much.")
    assert repr(double) == f"<job 'double' of {__name__}.{double.__qualname__}>"
    assert dict(app.jobs) == {"double": double}


async def test_an_async_job_is_awaited_as_ever() -> None:
    app = App()

    @app.job("other name")
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return number * 2

    assert await double(4) == 8
    assert double.is_async
    assert list(app.jobs) == ["other name"]


def no_parameter() -> None: ...
def one(argument: object) -> None: ...
def keyword_default(argument: object, *, dry: bool = False) -> None: ...
def second_default(argument: object, more: int = 1) -> None: ...
def with_context(argument: object, context: Context) -> None: ...
def maybe_context(argument: object, context: Context | None = None) -> None: ...
def text_context(argument: "OnlyForCheckers", context: "Context") -> None: ...
def spread(*arguments: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (no_parameter, 0),
        (one, 1),
        (keyword_default, 1),
        (second_default, 1),
        (with_context, 2),
        (maybe_context, 2),
        (text_context, 2),
        (spread, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_parameters(function: Any, parameters: int) -> None:
    assert App().job()(function).parameters == parameters


def two(first: object, second: object) -> None: ...
def keyword_only(argument: object, *, dry: bool) -> None: ...
def context_first(context: Context) -> None: ...
def generator(argument: object) -> Any:
    yield argument


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (two, "needs first, second, but a job function is called with one"),
        (keyword_only, "needs argument, dry, but"),
        (context_first, "take the Context as the second"),
        (generator, "is a generator"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_once(function: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        App().job()(function)


NUMBER = "number of seconds above 0"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({"timeout": wrong}, NUMBER) for wrong in ["30s", 0, -1, True, float("nan"), float("inf"), 2_592_001]),
        ({"max_retry": -1}, "max_retry is a whole number from 0"),
        ({"max_retry": 2.0}, "max_retry is a whole number from 0"),
        ({"priority": 2**31}, "priority is a whole number"),
        ({"keep_result": 1}, "keep_result is True or False"),
        ({"loop": "curio"}, 'loop is "trio" or "asyncio"'),
    ],
)
def test_an_option_that_no_push_could_have_is_refused_when_it_is_declared(options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        App().job(**options)


def test_the_loop_of_a_job_is_its_own_or_its_apps() -> None:
    async def work() -> None: ...

    app = App(loop="asyncio")
    assert app.job("a")(work).loop == "asyncio"
    assert app.job("t", loop="trio")(work).loop == "trio"
    assert app.job("plain")(no_parameter).loop is None
    with pytest.raises(TypeError, match="a plain function and needs no loop"):
        app.job("wrong", loop="trio")(no_parameter)


def test_names_are_checked_and_unique() -> None:
    app = App()
    app.job()(one)
    with pytest.raises(ValueError, match="two functions want the job name 'one'"):
        app.job("one")(no_parameter)
    for name in ("a\nb", "x" * 129):
        with pytest.raises(ValueError, match="1 to 128 printable"):
            app.job(name)(one)
    with pytest.raises(TypeError, match="with parentheses"):
        app.job(one)  # type: ignore[arg-type]


async def test_push_sends_the_options_of_the_job_unless_others_are_given() -> None:
    async with open_daemon() as daemon:
        app = App(daemon.url)

        @app.job(priority=3, max_retry=1, timeout=60, keep_result=True)
        def resize(path: str) -> None: ...

        @app.job()
        def bare() -> None: ...

        def push() -> None:
            assert resize.push("a.png") == "job-1"
            with Client(daemon.url) as client:
                assert resize.push("b.png", client=client, priority=-1, job_id="mine") == "mine"
            bare.push()
            app.client.close()

        await trio.to_thread.run_sync(push)
        sent = {"name": "resize", "priority": 3, "max_retry": 1, "timeout": 60, "keep_result": True}
        assert daemon.seen[0].body == sent | {"argument": "a.png"}
        assert daemon.seen[1].body == sent | {"argument": "b.png", "priority": -1, "job_id": "mine"}
        assert daemon.seen[2].body == {"name": "bare"}, "what nobody said, the daemon decides"
