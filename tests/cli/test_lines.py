"""`--lines`: what becomes of each line when a daemon refuses some, or goes away in between."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.cli.argument import LINES_PER_PUSH, Line, Pushed, arguments, push_file
from jqd.cli.exits import Exit
from jqd.client import Client
from tests.harness.handled import Handled

Answer = Callable[[list[dict[str, Any]], int], httpx2.Response]


def client(answer: Answer) -> Client:
    """A client whose daemon answers the n-th array of jobs with `answer(jobs, n)`."""
    seen = 0

    def handle(request: httpx2.Request) -> httpx2.Response:
        nonlocal seen
        seen += 1
        return answer(msgspec.msgpack.decode(request.content), seen)

    return Client(transport=Handled(handle))


def told(status: int, body: Any) -> httpx2.Response:
    return httpx2.Response(
        status, content=msgspec.msgpack.encode(body), headers={"content-type": "application/msgpack"}
    )


def taken(jobs: list[dict[str, Any]], _: int) -> httpx2.Response:
    return told(201, {"job_ids": [f"id{job.get('argument')}" for job in jobs]})


def push_lines(client: Client, name: str, path: Path, options: dict[str, Any]) -> Pushed:
    return push_file(client, name, path, arguments(path), options)


def lines_of(tmp_path: Path, count: int) -> Path:
    file = tmp_path / "lines"
    file.write_text("".join(f"{n}\n\n" for n in range(count)))
    return file


def test_a_long_file_goes_in_arrays_with_the_options_of_every_job(tmp_path: Path) -> None:
    sizes = []

    def answer(jobs: list[dict[str, Any]], n: int) -> httpx2.Response:
        sizes.append(len(jobs))
        assert all(job["name"] == "t" and job["priority"] == 5 for job in jobs)
        return taken(jobs, n)

    pushed = push_lines(client(answer), "t", lines_of(tmp_path, 2 * LINES_PER_PUSH + 1), {"priority": 5})
    assert sizes == [LINES_PER_PUSH, LINES_PER_PUSH, 1]
    assert pushed.job_ids == [f"id{n}" for n in range(2 * LINES_PER_PUSH + 1)]
    assert pushed.exit is Exit.DONE


def test_an_empty_file_pushes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pushed = push_lines(client(lambda *_: pytest.fail("asked")), "t", lines_of(tmp_path, 0), {})
    assert (pushed.job_ids, pushed.exit) == ([], Exit.DONE)
    assert capsys.readouterr().err.endswith("is a job; nothing was pushed\n")


def test_of_a_file_with_a_wrong_line_nothing_is_pushed_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_text('1\n2\n{"x": \n')
    pushed = push_lines(client(lambda *_: pytest.fail("asked")), "t", file, {})
    assert (pushed.jobs, pushed.exit) == (0, Exit.USAGE)
    err = capsys.readouterr().err
    assert "line 3 begins like JSON" in err
    assert err.endswith("; nothing was pushed\n")


def test_refused_lines_are_named_and_the_others_pushed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(jobs: list[dict[str, Any]], n: int) -> httpx2.Response:
        if n > 1:
            return taken(jobs, n)
        ids = ["a", None, *(["b"] * (len(jobs) - 2))]
        return told(207, {"job_ids": ids, "errors": [{"index": 1, "pointer": "/1/argument", "detail": "too large"}]})

    pushed = push_lines(client(answer), "t", lines_of(tmp_path, LINES_PER_PUSH + 5), {})
    assert len(pushed.job_ids) == LINES_PER_PUSH + 4
    assert [number for number, _ in pushed.refused] == [3]
    assert pushed.exit is Exit.FAILED
    err = capsys.readouterr().err
    assert "line 3 was refused: /argument too large" in err


def test_only_the_first_of_many_refusals_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(jobs: list[dict[str, Any]], _: int) -> httpx2.Response:
        errors = [{"index": n, "pointer": f"/{n}/name", "detail": "wrong"} for n in range(len(jobs))]
        return told(207, {"job_ids": [None] * len(jobs), "errors": errors})

    pushed = push_lines(client(answer), "t", lines_of(tmp_path, 50), {})
    assert (pushed.job_ids, len(pushed.refused), pushed.exit) == ([], 50, Exit.FAILED)
    err = capsys.readouterr().err
    assert err.count("was refused") == 20
    assert "and 30 more lines" in err


def test_refused_lines_are_counted_also_if_the_answer_names_only_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(jobs: list[dict[str, Any]], n: int) -> httpx2.Response:
        errors = [{"index": n, "pointer": f"/{n}/{field}", "detail": "wrong"} for n in range(3) for field in "ab"]
        if n == 1:
            return told(422, {"title": "wrong", "status": 422, "detail": "none can be taken", "errors": errors})
        return told(207, {"job_ids": [None] * 150 + ["id"] * (len(jobs) - 150), "errors": errors})

    pushed = push_lines(client(answer), "t", lines_of(tmp_path, 2 * LINES_PER_PUSH), {})
    assert (pushed.jobs, pushed.refusals) == (LINES_PER_PUSH - 150, LINES_PER_PUSH + 150)
    err = capsys.readouterr().err
    assert err.count("was refused") == 12
    assert f"and {LINES_PER_PUSH + 150 - 6} more lines" in err


def test_a_daemon_that_goes_away_leaves_no_pushed_job_unsaid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(jobs: list[dict[str, Any]], n: int) -> httpx2.Response:
        if n > 1:
            raise httpx2.ReadError("gone")
        return taken(jobs, n)

    pushed = push_lines(client(answer), "t", lines_of(tmp_path, 3 * LINES_PER_PUSH), {})
    assert len(pushed.job_ids) == LINES_PER_PUSH
    assert pushed.exit is Exit.UNREACHABLE
    pushed.show("jsonl")
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == LINES_PER_PUSH
    assert f"{LINES_PER_PUSH} jobs pushed, all lines up to {2 * LINES_PER_PUSH - 1}" in err


def test_a_refusal_of_everything_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pushed = push_lines(
        client(lambda *_: told(422, {"title": "no", "errors": [{"pointer": "/priority", "detail": "wrong"}]})),
        "t",
        lines_of(tmp_path, 5),
        {},
    )
    assert (pushed.job_ids, pushed.exit) == ([], Exit.USAGE)
    assert "priority" in capsys.readouterr().err


def test_a_line_that_cannot_be_sent_stops_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n" * LINES_PER_PUSH + "9" * 30 + "\n")
    pushed = push_lines(client(taken), "t", file, {})
    assert len(pushed.job_ids) == LINES_PER_PUSH
    assert pushed.exit is Exit.USAGE
    assert f"line {LINES_PER_PUSH + 1} cannot be sent" in capsys.readouterr().err


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["good", "invalid", "large", "conflict"]), min_size=1, max_size=20),
    lines_max=st.integers(1, 8),
    jobs_max=st.integers(1, 8),
)
def test_each_good_line_is_pushed_and_each_bad_one_named_whatever_the_cut(
    kinds: list[str], lines_max: int, jobs_max: int
) -> None:
    sent: list[int] = []

    def answer(jobs: list[dict[str, Any]], _: int) -> httpx2.Response:
        found = [kinds[job["argument"] - 1] for job in jobs]
        if found == ["large"]:  # the only job of a request: no list of errors
            return told(413, {"title": "too large", "detail": "one job has at most 9 bytes"})
        errors = [{"index": at, "pointer": f"/{at}", "detail": kind} for at, kind in enumerate(found) if kind != "good"]
        if "good" not in found:
            return told(409 if "conflict" in found else 422, {"title": "no", "errors": errors})
        sent.extend(job["argument"] for job, kind in zip(jobs, found, strict=True) if kind == "good")
        ids = [f"id{job['argument']}" if kind == "good" else None for job, kind in zip(jobs, found, strict=True)]
        return told(207 if errors else 201, {"job_ids": ids, "errors": errors})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jqd.cli.argument.LINES_PER_PUSH", lines_max)
        patch.setattr("jqd.client.send.PUSH_JOBS_MAX", jobs_max)
        lines = [Line(number, number, 0) for number in range(1, len(kinds) + 1)]
        pushed = push_file(client(answer), "t", Path("lines"), lines, {})
    good = [number for number, kind in enumerate(kinds, 1) if kind == "good"]
    assert (sent, pushed.job_ids) == (good, [f"id{number}" for number in good])
    assert [number for number, _ in pushed.refused] == [n for n in range(1, len(kinds) + 1) if n not in good]
    assert (pushed.jobs, pushed.refusals, pushed.stopped) == (len(good), len(kinds) - len(good), None)
