"""`push --csv`: what becomes of rows, what is wrong with them, and that a push that stopped goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jqd.cli import run
from jqd.cli.argument import LINES_PER_PUSH, push_file
from jqd.cli.exits import Exit, Usage
from jqd.cli.rows import Table, rows
from jqd.client import Client
from tests.cli.test_lines import client, taken

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        file = tmp_path / "rows.csv"
        file.write_bytes(text.encode())
        return file

    return written


def made(file: Path, **options: Any) -> list[Any]:
    return [line.argument for line in rows(file, Table(csv=file, **options))]


def test_the_first_line_names_the_fields_and_cells_are_text(write: Write) -> None:
    file = write('\ufeffid, name\r\n00123,"Ä, ""B"""\r\n\r\n7,\r\n')  # as spreadsheets write it
    assert made(file) == [{"id": "00123", "name": 'Ä, "B"'}, {"id": "7", "name": ""}]


def test_columns_may_be_json(write: Write) -> None:
    file = write('n;on;list;text\n12;true;[1, 2];12\n;null;"{""a"": 1}";\n')
    assert made(file, delimiter=";", json_columns="n, on,list") == [
        {"n": 12, "on": True, "list": [1, 2], "text": "12"},
        {"n": None, "on": None, "list": {"a": 1}, "text": ""},
    ]


def test_jobs_are_named_by_the_line_they_begin_in_or_by_a_column(write: Write) -> None:
    file = write('a,b\n1,"two\nlines"\n\n3,x\n')
    by_line = list(rows(file, Table(csv=file, batch_key="k")))
    assert [(line.number, line.named) for line in by_line] == [(2, {"job_id": "k-2"}), (5, {"job_id": "k-5"})]
    assert by_line[-1].read_bytes == file.stat().st_size
    assert [line.named for line in rows(file, Table(csv=file, id_column="a"))] == [{"job_id": "1"}, {"job_id": "3"}]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", {}, "is empty: its first line names the columns"),
        ("a,b,a\n1,2,3\n", {}, "line 1 names a column twice: a"),
        ("a,,b\n1,2,3\n", {}, "line 1 names a column nothing"),
        ("a;b\n1;2\n", {}, "line 1 has no comma, but ';'; say so with --delimiter"),
        ("a,b\n1,2\n\n1\n", {}, "line 4 has 1 cells, the first line names 2"),
        ('a,b\n1,"x"y\n', {}, "line 2 is no CSV"),
        ('a,b\n1,2\n3,"x\ny\n', {}, "line 3 is no CSV: .*is a quote not closed?"),
        ('a\n"' + "x" * (1 << 20) + 'y"\n', {}, "line 2 is no CSV: .*is a quote not closed?"),
        ("a,b\n1,2\n", {"json_columns": "c"}, "has no column 'c', it has: a, b"),
        ("a,b\n1,2\n1,yes\n", {"json_columns": "b"}, "line 3, column b: 'yes' is no JSON"),
        ("a,b\n1,2\n" + "9" * 30 + ",2\n", {"json_columns": "a"}, "line 3, column a cannot be sent"),
        ("a,b\n1,2\n ,2\n", {"id_column": "a"}, "line 3, column a: the id of the job is empty"),
        ("a,b\n1,2\n", {"id_column": "c"}, "has no column 'c'"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(text: str, options: dict[str, Any], says: str, write: Write) -> None:
    with pytest.raises(Usage, match=says):
        made(write(text), **options)


def test_a_line_without_an_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.cli.rows.LINE_CHARACTERS_MAX", 8)
    with pytest.raises(Usage, match=r"line 2 is longer than 8 characters"):
        made(write("a,b\n12345678,9\n"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--batch-key", "k"], "--batch-key goes with --csv"),
        (["--csv", "f", "--batch-key", "k", "--id-column", "a"], "give one of them"),
        (["--csv", "f", "--delimiter", ";;"], "give one character"),
        (["1", "--csv", "f"], "--csv brings the arguments"),
        (["--csv", "f", "--lines", "f"], "--csv brings the arguments"),
        (["--csv", "f", "--id", "a"], "there are --id-column and --batch-key"),
        (["--csv", "f", "--wait"], "--csv waits for no job"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["push", "t", *words, "--url", "http://127.0.0.1:1"]) == Exit.USAGE
    assert says in capsys.readouterr().err


def test_a_long_file_keeps_numbers_only(write: Write) -> None:
    file = write("n\n" + "1\n" * (2 * LINES_PER_PUSH + 1))
    pushed = push_file(client(taken), "t", file, rows(file, Table(csv=file)), {}, keep_ids=False)
    assert (pushed.jobs, pushed.job_ids, pushed.exit) == (2 * LINES_PER_PUSH + 1, [], Exit.DONE)


def test_a_push_that_stopped_goes_on_and_nothing_counts_twice(
    url: str, write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "n\n" + "".join(f"{n}\n" for n in range(2 * LINES_PER_PUSH + 5))
    words = ["push", "echo", "--csv", "rows.csv", "--batch-key", "stopped", "--json-columns", "n", "--url", url]
    monkeypatch.chdir(write(text.replace("\n2003\n", "\nx\n")).parent)
    assert run(words) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == f"{2 * LINES_PER_PUSH} jobs pushed\n"
    assert "rows.csv line 2005, column n: 'x' is no JSON" in told.err
    assert f"{2 * LINES_PER_PUSH} jobs pushed, all lines up to 2001" in told.err
    assert "the same command again goes on" in told.err
    write(text)
    assert run([*words, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"jobs": 2005, "known": 2000, "refused": 0}
    with Client(url) as asked:
        assert asked.get("stopped-2005", wait=30).argument == {"n": 2003}


def test_other_rows_under_the_same_ids_are_refused_by_their_lines(
    url: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["push", "echo", "--id-column", "id", "--url", url]
    assert run([*words, "--csv", str(write("id,n\nrow-a,1\nrow-b,2\n"))]) == 0
    assert run([*words, "--csv", str(write("id,n\nrow-a,1\nrow-b,3\n"))]) == Exit.FAILED
    told = capsys.readouterr()
    assert "line 3 was refused" in told.err
    assert told.out.endswith("1 job pushed; 1 line refused\n")


def test_a_daemon_that_goes_away_stops_it(write: Write) -> None:
    def answer(jobs: list[dict[str, Any]], n: int) -> httpx2.Response:
        if n > 1:
            raise httpx2.ReadError("gone")
        return taken(jobs, n)

    file = write("n\n" + "1\n" * (2 * LINES_PER_PUSH))
    pushed = push_file(client(answer), "t", file, rows(file, Table(csv=file)), {}, keep_ids=False)
    assert (pushed.jobs, pushed.exit) == (LINES_PER_PUSH, Exit.UNREACHABLE)
