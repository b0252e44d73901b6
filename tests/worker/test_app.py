"""Job functions: what may be one, how it is called, and what `push` sends."""

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from jqd import App
from jqd.domain import media
from jqd.worker.parameters import Parameters
from tests.harness.daemon import open_daemon

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
def two_whole(first: object, /, second: object) -> None: ...
def of_a_class(path: Path) -> None: ...
def of_two_lists(rows: list[int] | tuple[str, ...]) -> None: ...
def generator(argument: object) -> Any:
    yield argument


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (two_whole, "first has no name to be pushed under"),
        (of_a_class, "path is a Path, which no argument can carry"),
        (of_two_lists, "cannot be checked: Type unions may not"),
        (generator, "is a generator"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_once(function: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        App().job(function)


def several(to: str, subject: str = "none", *cc: str, copies: int = 1, **marks: float) -> Any:
    return [to, subject, *cc, copies, marks]


def whole(rows: list[int], /) -> Any:
    return rows


def whole_or(rows: list[int] | None = None, /) -> Any:
    return rows or "none"


def only_checkers_know(argument: "OnlyForCheckers", times: int = 1) -> Any:
    return [argument, times]


def pushed(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What is sent for a call, and what a worker calls the function with: in MessagePack and, of plain values, JSON."""
    parameters = Parameters(function, "f")
    packed = parameters.pack(args, kwargs)
    argument = None if packed is None else msgspec.msgpack.decode(packed)
    for content_type, encoded in [(media.MSGPACK, packed or b""), (media.JSON, msgspec.json.encode(argument))]:
        given, named = parameters.unpack(msgspec.Raw(encoded), content_type)
        assert function(*given, **named) == function(*args, **kwargs)
    return argument


def test_an_argument_is_a_map_of_the_parameters_by_name() -> None:
    assert pushed(several, "ann") == {"to": "ann"}
    assert pushed(several, "ann", subject="hi") == {"to": "ann", "subject": "hi"}
    assert pushed(several, "ann", "hi", "bob", "cy") == {"to": "ann", "subject": "hi", "cc": ["bob", "cy"]}
    told = {"to": "ann", "copies": 2, "marks": {"a": 1.5}}
    assert pushed(several, to="ann", copies=2, a=1.5) == told
    assert pushed(no_parameter) is None
    assert pushed(whole, [1, 2]) == [1, 2]
    assert pushed(whole_or) is None
    assert pushed(whole_or, [3]) == [3]
    assert pushed(only_checkers_know, "x", 2) == {"argument": "x", "times": 2}
    assert Parameters(several, "f").unpack(msgspec.Raw(b'{"to": "a", "cc": ["z"]}'), media.JSON)[0] == [
        "a",
        "none",
        "z",
    ]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "says"),
    [
        (several, (3,), {}, "Expected `str`, got `int` - at `$.to`"),
        (several, (), {}, "missing a required argument: 'to'"),
        (several, ("a",), {"copies": "b"}, "at `$.copies`"),
        (whole, (["a"],), {}, r"takes \(rows: list\[int\], /\): Expected `int`, got `str`"),
        (no_parameter, (1,), {}, "takes no argument: too many"),
        (one, (object(),), {}, "Encoding objects of type object is unsupported"),
        (one, (2**70,), {}, "'f' takes"),
    ],
)
def test_who_pushes_a_wrong_argument_is_told_at_once(function: Any, args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says.replace("$", r"\$")):
        Parameters(function, "f").pack(args, kwargs)


@pytest.mark.parametrize(
    ("function", "argument", "says"),
    [
        (several, b'{"to": 3}', "Expected `str`, got `int` - at `$.to`"),
        (several, b"{}", "missing required field `to`"),
        (several, b'{"to": "a", "form": 1}', "unknown field `form`"),
        (several, b"[1]", r"Expected `object`, got `array`. Push a map of its parameters, {\"to\": …, .*before a '/'"),
        (no_parameter, b"0", r"takes no argument: Expected `object`, got `int`\Z"),
        (whole, b"null", "Expected `array`, got `null`"),
    ],
)
def test_so_does_a_worker_that_gets_one(function: Any, argument: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("$", r"\$")):
        Parameters(function, "f").unpack(msgspec.Raw(argument), media.JSON)


NUMBER = "number of seconds above 0|is no duration"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({"timeout": wrong}, NUMBER) for wrong in ["soon", "0s", 0, -1, True, float("nan"), float("inf"), 2_592_001]),
        ({"max_retry": -1}, "max_retry is a whole number from 0"),
        ({"max_retry": 2.0}, "max_retry is a whole number from 0"),
        ({"priority": 2**31}, "priority is a 32-bit whole number"),
        ({"keep_result": 1}, 'keep_result is True, False or "required"'),
        ({"server_only": 1}, "server_only is True or False"),
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


async def test_push_sends_the_options_of_the_job_unless_others_are_given() -> None:
    async with open_daemon() as daemon:
        app = App(daemon.url)

        @app.job(priority=3, max_retry=1, timeout="1m", keep_result=True, server_only=True)
        def resize(path: str) -> None: ...

        @app.job
        def bare() -> None: ...

        def push() -> None:
            ref = resize.push("a.png")
            assert (ref.job_id, repr(ref)) == ("job-1", "<ref of 'resize' job-1>")
            mine = resize.options(priority=-1, id="mine", delay="5m", tags=["x"], timeout=timedelta(hours=1))
            assert mine.enqueue(path="b.png").job_id == "mine"
            bare.delay()
            app.client.close()

        await trio.to_thread.run_sync(push)
        sent = {"name": "resize", "priority": 3, "max_retry": 1, "timeout": 60, "keep_result": True}
        assert daemon.seen[0].body == sent | {"argument": {"path": "a.png"}}
        more = {"argument": {"path": "b.png"}, "priority": -1, "job_id": "mine", "delay": 300, "tags": ["x"]}
        assert daemon.seen[1].body == sent | more | {"timeout": 3600}
        assert daemon.seen[2].body == {"name": "bare"}, "what nobody said, the daemon decides"


@pytest.mark.parametrize(
    ("option", "meant"),
    [("retries", "did you mean 'max_retry'?"), ("queue", "did you mean 'name'?"), ("x", "there are name, priority")],
)
def test_an_option_that_is_none_is_told_what_was_meant(option: str, meant: str) -> None:
    with pytest.raises(TypeError, match=re.escape(meant)):
        App().job("mail", **{option: 3})  # type: ignore[call-overload]
