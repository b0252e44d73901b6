"""Web hooks and line runners: what is sent to them, and what any answer of theirs means."""

import itertools
import json
import threading
from collections.abc import Sequence
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain import json_ext
from jqd.domain.errors import AnswerGarbled
from jqd.domain.followers import FOLLOWERS_MAX
from jqd.domain.job import NIL, Fate, Held, Job
from jqd.domain.job_lines import line_of
from jqd.runner.outcome import Report
from jqd.runner.protocols import STYLES
from jqd.runner.protocols.protocol import Answer, JobReport, Pending, Sending
from jqd.runner.transport.post import APART_BYTES
from jqd.runner.worker import StyleName, Worker
from tests.harness.heads import headers_of
from tests.harness.worker import Reply, Request, answer, open_worker
from tests.runner.conftest import Eventually, OpenHouse, hold

LIMIT = 1_000

plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    plain | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner),
    max_leaves=12,
)


def sending(style: StyleName, *arguments: Any, **job: Any) -> Sending:
    batch = 9 if style == "lines" else None
    worker = Worker(name="w", id="W", url="http://h/run", max_jobs=9, batch=batch, style=style, registered_at_ms=0)
    jobs = [Job(f"J{n}", "mail", msgpack.packb(argument), **job) for n, argument in enumerate(arguments)]
    return Sending(worker, "mail", [Held(each, 3, 2) for each in jobs], "b", "D", 1_700_000_000_000)


def hear(told: Sending, body: bytes, kind: str = "", *cuts: int) -> list[Answer]:
    """What is made of a body that arrives in pieces."""
    reader = STYLES[told.worker.style].reader(told, kind, LIMIT)
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    heard = [each for start, end in itertools.pairwise(edges) for each in reader.feed(body[start:end])]
    return [*heard, *reader.end()]


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False)


# ------------------------------------------------ web hooks


@given(values)
def test_a_hook_reads_the_argument_as_json(argument: Any) -> None:
    request = STYLES["webhook"].request(sending("webhook", argument))
    json.loads(request.body)
    assert unpack(msgspec.msgpack.encode(json_ext.read(request.body))) == argument


def test_what_json_can_say_it_says_as_everybody_does() -> None:
    request = STYLES["webhook"].request(sending("webhook", {"to": ["é", 1.5, None]}, timeout=1.5, max_retry=7))
    assert json.loads(request.body) == {"to": ["é", 1.5, None]}
    headers = headers_of(request)
    assert (request.method, request.url, headers["Content-Type"]) == ("POST", "http://h/run", "application/json")
    names = ("JQD-Job-Id", "JQD-Job-Type", "JQD-Attempt", "JQD-Max-Retry", "JQD-Deadline", "Accept")
    assert [headers[name] for name in names] == ["J0", "mail", "2", "7", "2023-11-14T22:13:21.500Z", "*/*"]


def test_an_argument_of_a_thousand_levels_is_sent_all_the_same() -> None:
    deep = b"\x91" * 5_000 + NIL
    told = sending("webhook", None)
    told.held[0] = Held(Job("J0", "mail", deep), 3, 1)  # type: ignore[index]
    assert set(json.loads(STYLES["webhook"].request(told).body)) == {"$msgpack"}


@given(values, st.sampled_from(["json", "msgpack"]), st.lists(st.integers(0), max_size=5))
def test_the_body_of_a_2xx_is_the_result(value: Any, language: str, cuts: Sequence[int]) -> None:
    body = msgpack.packb(value) if language == "msgpack" else json_ext.json_of(msgpack.packb(value))
    (said,) = hear(sending("webhook", None, keep_result=True), body[:LIMIT], f"application/{language}", *cuts)
    assert isinstance(said, JobReport)
    if len(body) < LIMIT:
        assert (said.report.status, unpack(said.report.result)) == (200, value)


@given(st.binary(max_size=100), st.sampled_from(["", "text/html", "application/json", "application/msgpack", "é/;"]))
def test_any_body_of_any_type_is_a_result(body: bytes, kind: str) -> None:
    (said,) = hear(sending("webhook", None, keep_result=True), body, kind)
    assert isinstance(said, JobReport)
    assert said.report.status == 200
    result = msgspec.msgpack.decode(said.report.result, type=msgspec.Raw)
    if not body:
        assert bytes(result) == NIL
    elif kind in ("", "text/html"):
        found = unpack(bytes(result))
        assert (found.encode() if isinstance(found, str) else found) == body


def test_no_more_is_kept_of_a_body_than_can_be_a_result() -> None:
    for body in (b"[" + b"1," * LIMIT, b"7" + b" " * LIMIT + b"x"):
        said = hear(sending("webhook", None, keep_result=True), body, "application/json")
        assert said == [JobReport(None, Report(result_bytes=len(body)))], "its size: the job is told that"
    assert hear(sending("webhook", None), b"x" * 9 * LIMIT) == [JobReport(None, Report())], "it wants no result"


async def test_jobs_run_on_a_hook(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        if request.body == b'"no such path"':
            await reply.send(404)
        else:
            await reply.send(201, b'{"got": ' + request.body + b"}", kind="application/json; charset=utf-8")

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, style="webhook")
        held = [*hold(1, argument=7, keep_result=True), *hold(1, argument="no such path"), *hold(1, argument=8)]
        done, away, other = await house.run_to_end(held)
        assert (done.fate, done.status, unpack(done.result)) == (Fate.SUCCEEDED, 201, {"got": 7})
        assert (away.fate, away.status) == (Fate.RETRY, 404), "a slip in its URL kills no job"
        assert away.message.startswith("MISPLACED: nothing is at its URL; ")
        assert (other.fate, other.result) == (Fate.SUCCEEDED, NIL)
        assert len(worker.requests) == 3


# ------------------------------------------------ lines


@given(values)
def test_an_argument_is_one_line(argument: Any) -> None:
    line = line_of(msgpack.packb(argument))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    if isinstance(argument, str) and "\n" not in argument and "\r" not in argument:
        assert line == argument.encode() + b"\n"
    else:
        assert unpack(msgspec.msgpack.encode(json_ext.read(line))) == argument


def test_a_batch_is_its_lines() -> None:
    assert (
        STYLES["lines"].request(sending("lines", "a|b", {"a": 1}, "two\nlines")).body
        == b'a|b\n{"a":1}\n"two\\nlines"\n'
    )


noise = st.lists(st.sampled_from(["# 200 a comment", "#J: mail|x", "J: mail|y", "#", "", " \t"]), max_size=3)
texts = st.text(st.characters(blacklist_characters="\n", codec="utf-8"), max_size=9)


@given(
    st.lists(
        st.tuples(noise, st.sampled_from(["", " ", "\t+", "00"]), st.integers(0, 999), texts), min_size=1, max_size=6
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.lists(st.integers(0), max_size=6),
)
def test_each_line_is_the_answer_of_its_job(
    rows: list[tuple[list[str], str, int, str]], newline: str, ended: bool, cuts: Sequence[int]
) -> None:
    lines = [line for noisy, before, status, text in rows for line in (*noisy, f"{before}{status} {text}")]
    body = newline.join(lines) + (newline if ended else "")
    told = sending("lines", *range(len(rows)))
    heard = hear(told, body.encode(), "", *cuts)
    ends = {str(said.job_id): said.report for said in heard if isinstance(said, JobReport)}
    assert {job_id: (report.status, report.message) for job_id, report in ends.items()} == {
        f"J{n}": (status, text.strip()) for n, (_, _, status, text) in enumerate(rows)
    }
    good = [report for _, report in sorted(ends.items()) if 200 <= report.status < 300]
    said_jobs = [line[line.index(" ") + 1 :] for line in lines if line.startswith(("J: ", "#J: "))] if good else []
    found = [job for report in good if report.follows for job in unpack(report.follows)]
    assert [f"{job['name']}|{job['argument']}" for job in found] == said_jobs, "each new job once, in their order"
    assert not any(report.follows for report in ends.values() if not 200 <= report.status < 300)
    fewer = hear(sending("lines", *range(len(rows) + 2)), body.encode())
    assert sum(isinstance(said, JobReport) for said in fewer) == len(rows), (
        "nothing is said of jobs without a line: they get NO_RESPONSE"
    )


@pytest.mark.parametrize(
    ("body", "follow"),
    [
        ("J: a|1\n200\nJ: b|2\n200\nJ: c|3\n", {"J0": ["a"], "J1": ["b", "c"]}),
        ("200\nJ: a|1\n500\n", {"J0": ["a"]}),
        ("J: a|1\n500\n200\n", {"J1": ["a"]}),
        ("J: a|1\n404\n500\nJ: b|2\n", {}),
        ("200\nwhat\nJ: a|1\n", {"J0": ["a"]}),
        ("200\n#J: a\n", {"J0": ["a"]}),
        ("200\nJ:a|1\n", {}),
        ("200\n" + "J: a|1\n" * 9_999, {"J0": ["a"] * (FOLLOWERS_MAX + 1)}),
    ],
)
def test_a_new_job_follows_the_success_whose_line_comes_next_or_the_last_one(
    body: str, follow: dict[str, list[str]]
) -> None:
    heard = hear(sending("lines", 0, 1), body.encode())
    ends = [said for said in heard if isinstance(said, JobReport) and said.report.follows]
    assert {said.job_id: [job["name"] for job in unpack(said.report.follows)] for said in ends} == follow


def test_a_success_that_is_not_told_yet_shows_that_the_worker_works() -> None:
    reader = STYLES["lines"].reader(sending("lines", 0, 1, 2), "", LIMIT)
    assert [*reader.feed(b"200\n")] == [Pending()]
    for number in range(2):
        (said,) = reader.feed(b"200\n")
        assert isinstance(said, JobReport)
        assert said.job_id == f"J{number}"
    assert [said.job_id for said in reader.end() if isinstance(said, JobReport)] == ["J2"]


@pytest.mark.parametrize("bad", [b"done", b"-1", b"ok 200", b"failed at line 200", b"<p>200", "٢٠٠".encode()])
def test_a_line_without_a_status_spoils_all_after_it(bad: bytes) -> None:
    heard = hear(sending("lines", *range(4)), b"200 ok\n" + bad + b"\n200\n200\n")
    ends = {str(said.job_id): said.report for said in heard if isinstance(said, JobReport)}
    assert {job_id: report.status for job_id, report in ends.items()} == {"J0": 200, "J1": 500, "J2": 500, "J3": 500}
    assert [job_id for job_id in ends if ends[job_id].message.startswith("INVALID_RESPONSE")] == ["J1", "J2", "J3"]


@given(st.binary(max_size=200), st.lists(st.integers(0), max_size=5))
def test_any_bytes_are_read_the_same_however_they_are_cut(body: bytes, cuts: Sequence[int]) -> None:
    whole = hear(sending("lines", 1, 2, 3), body)
    assert whole == hear(sending("lines", 1, 2, 3), body, "", *cuts)
    assert sum(isinstance(said, JobReport) for said in whole) <= 3


def test_a_line_that_never_ends_is_not_collected_for_ever() -> None:
    with pytest.raises(AnswerGarbled, match="1000 bytes"):
        hear(sending("lines", 1), b"2" * 5_000, "", *range(0, 5_000, 100))


@pytest.mark.parametrize(
    ("http", "body", "status", "text"),
    [
        (200, b"500 why\n", 500, "why"),
        (200, b"# begun\n 404\n", 404, ""),
        (204, b"200 sent", 200, "sent"),
        (200, b"1 row changed\n", 200, "1 row changed"),
        (200, b"4040 rows changed\n", 200, "4040 rows changed"),
        (200, b"404.html written\n", 200, "404.html written"),
        (200, b"999 rows changed\n", 200, "999 rows changed"),
        (503, b"200 ok\n", 503, "200 ok"),
    ],
)
def test_a_line_alone_begins_with_its_status_or_has_that_of_its_answer(
    http: int, body: bytes, status: int, text: str
) -> None:
    worker = Worker(name="w", id="W", url="http://h/run", max_jobs=9, style="lines", registered_at_ms=0)
    told = sending("lines", "x")._replace(worker=worker)
    reader = STYLES["lines"].reader(told, "", LIMIT, http)
    (said,) = (each for each in (*reader.feed(body), *reader.end()) if isinstance(each, JobReport))
    assert (said.report.status, said.report.message) == (status, text)


def test_a_line_alone_without_a_status_has_that_of_its_answer() -> None:
    """`1 row changed` is what the worker says, not how it went."""
    worker = Worker(name="w", id="W", url="http://h/run", max_jobs=9, style="lines", registered_at_ms=0)
    told = sending("lines", "x")._replace(worker=worker)
    assert STYLES["lines"].batch(worker) == 1
    for body, text in ((b"# 1\n1 row changed\nmore\n", "1 row changed"), (b"", ""), (b"#J: mail|x", "")):
        (said,) = (each for each in hear(told, body) if isinstance(each, JobReport))
        assert (said.job_id, said.report.status, unpack(said.report.result)) == ("J0", 200, text or None)


async def test_jobs_run_on_a_line_runner(open_house: OpenHouse) -> None:
    lines = b"# begun\n200 sent\n404 no such\n503 later\n0\n600\n999999\nJ: mail|x\n"
    async with open_worker(answer(200, lines, kind="text/plain")) as worker, open_house() as house:
        house.register(worker.url, style="lines", batch=10)
        outcomes = await house.run_to_end(hold(7, argument="x", keep_result=True))
        assert worker.requests[0].body == b"x\n" * 7
        assert [(outcome.fate, outcome.status) for outcome in outcomes] == [
            (Fate.SUCCEEDED, 200),
            (Fate.FAILED, 404),
            *[(Fate.RETRY, 503), (Fate.RETRY, 500), (Fate.RETRY, 500), (Fate.RETRY, 500)],
            (Fate.RETRY, 500),
        ]
        assert (unpack(outcomes[0].result), outcomes[1].message) == ("sent", "no such")
        assert outcomes[6].message.startswith("NO_RESPONSE")
        assert b"mail" in outcomes[0].follows, "the last success"


# ------------------------------------------------ answers of servers that say no length


@pytest.mark.parametrize("style", ["webhook", "lines"])
@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n",
    ],
    ids=["as of http.server", "closed", "compressed"],
)
async def test_a_good_status_is_a_success_however_the_body_ends(
    open_house: OpenHouse, style: StyleName, head: str
) -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(head.encode() + b"Content-Type: text/plain\r\n\r\nok")
        await reply.close()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, style=style)
        (told,) = await house.run_out(hold(1, max_retry=0, keep_result=True))
        assert (told.fate, unpack(told.result), len(worker.requests)) == (Fate.SUCCEEDED, "ok", 1)


@pytest.mark.parametrize("style", ["webhook", "native", "lines"])
async def test_a_large_argument_is_converted_beside_the_loop(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, style: StyleName
) -> None:
    """A megabyte of empty maps takes most of a second."""
    begun, go_on, served = threading.Event(), threading.Event(), []
    shown = json_ext.json_of

    def slow(packed: bytes) -> bytes:
        begun.set()
        served.append(go_on.wait(2.0))
        return shown(packed)

    monkeypatch.setattr(json_ext, "json_of", slow)
    async with open_worker(answer(500)) as worker, open_house() as house:
        house.register(worker.url, style=style, format="json" if style != "lines" else None)
        house.run(hold(1, argument=[{}] * APART_BYTES, max_retry=0))
        await eventually(begun.is_set)
        go_on.set()
        await house.stopped(1)
        assert served[0], "the loop went on meanwhile"
        assert len(worker.requests) == 1
