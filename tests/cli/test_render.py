"""How answers look."""

import json
import math
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.cli import app, jobs
from jqd.cli.render import show, table
from jqd.client import Client, Conflict, JobInfo

BIDI = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What turns the order of text around it, by its character's number."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(0, 9) | st.binary(), inner, max_size=4)
    ),
    max_leaves=10,
)


def shown(value: object, output: str, capsys: pytest.CaptureFixture[str]) -> str:
    show(value, output)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_json_says_in_words_what_it_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    given_ = {
        "at": datetime(2030, 1, 31, tzinfo=UTC),
        "bytes": b"\xff",
        "nan": math.nan,
        "ext": msgspec.msgpack.Ext(5, b"\x01"),
        "odd": (1, {b"k": math.inf, 7: datetime(2030, 1, 31, tzinfo=UTC)}),
    }
    assert json.loads(shown(given_, "json", capsys), parse_constant=pytest.fail) == {
        "at": "2030-01-31T00:00:00.000Z",
        "bytes": {"$bytes": "/w=="},
        "nan": {"$msgpack": "y3/4AAAAAAAA"},
        "ext": {"$msgpack": "1AUB"},
        "odd": [1, {"$msgpack": "gsQBa8t/8AAAAAAAAAfW/3EDZYA="}],
    }


def test_json_lines_are_one_item_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown([{"a": "x\ny"}, 2], "jsonl", capsys) == '{"a": "x\\ny"}\n2\n'
    assert shown({"a": 1}, "jsonl", capsys) == '{"a": 1}\n'


def test_a_table_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    trace = "Traceback (most recent call last):\n  File …\nValueError: x"
    told = shown(
        JobInfo(
            job_id="1",
            name="t",
            state="failed",
            created_at=datetime(2030, 1, 31, tzinfo=UTC),
            error={"code": 5},
            message=trace,
            history=[{"attempt": 1, "status": 500, "message": trace, "worker": None}],
        ),
        "table",
        capsys,
    )
    assert told.splitlines() == [
        "job_id      1",
        "name        t",
        "state       failed",
        "priority    0",
        "attempts    0",
        "max_retry   0",
        "created_at  2030-01-31T00:00:00.000Z",
        'error       {"code": 5}',
        "message     Traceback (most recent call last):",
        "              File …",
        "            ValueError: x",
        "history     attempt 1  status 500  message ValueError: x",
    ]


def test_a_table_neither_wraps_nor_hides(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 60 + "end"
    assert shown({"message": long}, "table", capsys) == f"message  {long}\n"
    assert (
        shown({"result": [], "tags": [], "ready": False, "n": 0}, "table", capsys)
        == "result  []\nready   false\nn       0\n"
    )
    assert shown([{"a": 1}, {"a": 2.50000001}], "table", capsys) == "a  1\n\na  2.5\n"
    assert shown("[bold]x[/bold] :smile:", "table", capsys) == "[bold]x[/bold] :smile:\n"
    assert shown({"message": "[bold]x[/bold] :smile:"}, "table", capsys) == "message  [bold]x[/bold] :smile:\n"


def test_what_is_nested_gets_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    told = {
        "push": {"ready": True, "reason": None},
        "runner": {"in_flight": 3, "workers": [{"id": "a", "jobs": 1}, {"id": "b", "jobs": 2}], "none": []},
        "lanes": {"jobs": {"applied": 5}, "cancels": {"applied": 6}},
    }
    assert shown(told, "table", capsys).splitlines() == [
        "push    ready true",
        "runner  in_flight 3",
        "        workers: id a  jobs 1",
        "        workers: id b  jobs 2",
        "lanes   jobs: applied 5",
        "        cancels: applied 6",
    ]


def test_a_job_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\r\x08red"
    for value in (evil, {"message": evil}, {"error": [evil]}, {"history": [{"message": evil}]}, [evil], {evil: 1}):
        told = shown(value, "table", capsys)
        assert not set(told) & {"\x1b", "\x07", "\x9b", "\r", "\x08"}
        assert "red" in told


def test_a_job_cannot_reorder_what_stands_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A right-to-left override in a message had the terminal show `exe.gpj` as `jpg.exe`, and the rest of its line."""
    for code in BIDI:
        evil = f"a{chr(code)}b"
        for value in (evil, {"message": evil}, {"error": [evil]}, {"history": [{"message": evil}]}, [evil], {evil: 1}):
            told = shown(value, "table", capsys)
            assert f"a\\u{code:04x}b" in told
            assert chr(code) not in told
        assert f"a\\u{code:04x}b" in str(table(["NAME"], [[evil]]))


@given(VALUES)
def test_every_value_can_be_shown(value: object) -> None:
    for output in ("table", "json", "jsonl"):
        show(value, output)


def test_a_value_that_fills_screens_is_cut_for_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"argument": "x" * 9_000}
    assert shown(told, "table", capsys).endswith("xxx … (9000 characters; -o json has all)\n")
    assert json.loads(shown(told, "json", capsys)) == told


def test_what_is_said_beside_a_result_commands_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Client("http://127.0.0.1:9") as client:
        for state in ("failed", "succeeded"):
            info = JobInfo(
                job_id="1",
                name="t",
                state=state,
                created_at=datetime(2030, 1, 31, tzinfo=UTC),
                message="a\u202eb\x1b]0;owned\x07",
            )
            jobs._show_result(client, info, "table")
            assert r"a\u202eb\x1b]0;owned\x07" in capsys.readouterr().err


def test_an_error_that_repeats_what_others_wrote_commands_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert app._end(Conflict("no such a\u202eb\x1b]0;owned\x07", status=409)) == 1
    assert r"a\u202eb\x1b]0;owned\x07" in capsys.readouterr().err
