"""What is said to workers, and how their answers are read: without a network."""

import itertools
import json
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jqd.domain.errors import AnswerGarbled
from jqd.domain.job import NIL, Held, Job
from jqd.runner.outcome import Report
from jqd.runner.protocols import STYLES
from jqd.runner.protocols.outcome import Encoding, decode_answer, encoding_of
from jqd.runner.protocols.protocol import (
    Answer,
    ItemFailures,
    JobReport,
    Judgement,
    Refused,
    Sending,
    Started,
    Unclear,
)
from jqd.runner.protocols.stream import AnswerReader
from jqd.runner.worker import StyleName, Worker
from tests.harness.heads import headers_of

LIMIT = 10_000


def read(
    data: bytes, encoding: Encoding, *cuts: int, limit: int = LIMIT, most: int = 100_000
) -> tuple[list[Answer], str]:
    """What a reader makes of `data` arriving in pieces, and why it stopped if it did."""
    reader = AnswerReader(f"application/{encoding}", value_bytes_max=limit, values_max=most)
    answers: list[Answer] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    try:
        for start, end in itertools.pairwise(edges):
            answers.extend(reader.feed(data[start:end]))
        reader.end()
    except AnswerGarbled as error:
        return answers, str(error)
    return answers, ""


def counted(data: bytes, encoding: Encoding) -> tuple[int, str]:
    answers, why = read(data, encoding, 7, most=10)
    return len(answers), why


@pytest.mark.parametrize(
    ("encoding", "one", "empty"), [("msgpack", b"\x80", b"\x90"), ("json", b"{}", b"[]"), ("json", b" {}\n", b" [ ] ")]
)
def test_no_more_values_are_read_than_were_asked_for(encoding: Encoding, one: bytes, empty: bytes) -> None:
    many = 1 << 20  # a byte each: 64 MiB of them stopped the loop for minutes
    assert counted(one * 10, encoding) == (10, "")
    read_, why = counted(one * many, encoding)
    assert (read_, why[:33]) == (10, "the answer has more than 10 value")
    read_, why = counted(empty * many, encoding)
    assert (read_, why[:33]) == (0, "the answer has more than 10 value")


def test_an_array_that_announces_too_many_is_not_begun() -> None:
    assert counted(b"\xdd\xff\xff\xff\xff" + b"\x80" * 20, "msgpack")[0] == 0
    assert counted(b"[" + b"{}," * 20, "json")[0] == 9, "JSON does not announce"


def test_blanks_between_values_cost_little() -> None:
    assert counted(b"{}" + b" " * (16 << 20) + b"{}", "json") == (2, "")


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)
packed = st.recursive(
    plain | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


def outcomes_of(results: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(
        st.fixed_dictionaries(
            {"job_id": st.text("ABC", min_size=1), "type": st.just("success"), "result": results, "more": results}
        ),
        max_size=6,
    )


cuts_of = st.lists(st.integers(0), max_size=8)


@given(outcomes_of(packed), st.lists(st.booleans(), max_size=6), cuts_of)
def test_messagepack_reads_the_same_however_it_is_cut(
    outcomes: list[dict[str, Any]], arrays: list[bool], cuts: list[int]
) -> None:
    """Bare values and arrays of them may even take turns."""
    data, left = b"", list(outcomes)
    for as_array in arrays:
        part, left = (left[:2], left[2:]) if as_array else (left[:1], left[1:])
        data += msgpack.packb(part) if as_array else b"".join(map(msgpack.packb, part))
    data += msgpack.packb(left)
    answers, why = read(data, "msgpack", *cuts)
    assert why == ""
    assert [(a.job_id, a.report.result) for a in answers] == [  # type: ignore[union-attr]
        (o["job_id"], msgpack.packb(o["result"])) for o in outcomes
    ]


@given(outcomes_of(values), st.sampled_from(["array", "lines", "bare", "indented"]), cuts_of)
@example([{"job_id": "A", "type": "success", "result": '\\"}]{[', "more": "\\"}], "array", [])
def test_json_reads_the_same_however_it_is_cut(outcomes: list[dict[str, Any]], form: str, cuts: list[int]) -> None:
    texts = [json.dumps(outcome, ensure_ascii=False) for outcome in outcomes]
    text = {
        "array": "[" + ",".join(texts) + "]",
        "lines": "".join(text + "\r\n" for text in texts),
        "bare": "".join(texts),
        "indented": json.dumps(outcomes, indent=2),
    }[form]
    answers, why = read(text.encode(), "json", *cuts)
    assert why == ""
    assert [(a.job_id, msgpack.unpackb(a.report.result, strict_map_key=False)) for a in answers] == [  # type: ignore[union-attr]
        (o["job_id"], o["result"]) for o in outcomes
    ]


SAMPLES: list[tuple[Encoding, bytes]] = [
    ("msgpack", msgpack.packb({"job_id": "A", "status": 200, "result": [1, {"x": b"y" * 300}]}) * 3),
    ("msgpack", msgpack.packb([{"job_id": f"J{n}", "type": "success"} for n in range(20)])),
    (
        "json",
        b'[{"job_id": "A", "status": 200, "message": "\\"}\\\\"}, {"id": "B", "type": "success", "result": [{}]}]',
    ),
    ("json", b'{"job_id": "A", "status": 200}\n\n{"job_id": "B", "status": 500, "error": {"a": "]"}}\n'),
]


@pytest.mark.parametrize(("encoding", "data"), SAMPLES)
def test_every_single_cut(encoding: Encoding, data: bytes) -> None:
    whole = read(data, encoding)
    assert whole[1] == ""
    assert len(whole[0]) > 1
    assert read(data, encoding, *range(len(data))) == whole, "a byte at a time"
    for cut in range(len(data)):
        assert read(data, encoding, cut) == whole


@pytest.mark.parametrize(("encoding", "data"), SAMPLES)
def test_every_prefix_gives_a_prefix_and_is_noticed(encoding: Encoding, data: bytes) -> None:
    """A cut answer never passes for one that says more, and only between bare values for a whole one."""
    whole, _ = read(data, encoding)
    for length in range(len(data)):
        answers, why = read(data[:length], encoding)
        assert answers == whole[: len(answers)]
        if data[:1] == b"[" or (encoding == "msgpack" and data[0] == 0xDC):
            assert why or not length


@given(st.binary(max_size=200), st.sampled_from(["msgpack", "json"]), cuts_of)
@example(b"\xc7\xff\x05", "msgpack", [])
@example(b"\x92" * 64, "msgpack", [3])
@example(b'{"job_id":"A","status":1e400}', "json", [])
@example(b'{"job_id":"A","status":200,"result":' + b"9" * 40 + b"}", "json", [])
@example(b'{"job_id":"\xff","status":200}', "json", [])
@example(b"\x82\xa6job_id\xa1A\xa6status\xcf" + b"\xff" * 8, "msgpack", [])
def test_garbage_is_refused_or_read_but_never_breaks_the_reader(
    data: bytes, encoding: Encoding, cuts: list[int]
) -> None:
    answers, why = read(data, encoding, *cuts)
    assert (answers, bool(why)) == ((again := read(data, encoding))[0], bool(again[1]))


@given(st.binary(max_size=80), st.sampled_from(["msgpack", "json"]))
def test_a_value_is_always_judged(data: bytes, encoding: Encoding) -> None:
    assert isinstance(decode_answer(data, encoding), JobReport | Refused | Started | ItemFailures | Unclear)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("msgpack", msgpack.packb({"job_id": "A", "status": 200, "message": "x" * LIMIT})),
        ("msgpack", b"\xc6\xff\xff\xff\xff" + b"x" * (LIMIT + 1)),
        ("json", b'{"job_id": "A", "status": 200, "message": "' + b"x" * LIMIT + b'"}'),
        ("json", b"{" + b" " * (LIMIT + 1)),
    ],
)
def test_a_value_larger_than_the_limit_is_refused_early(encoding: Encoding, data: bytes) -> None:
    answers, why = read(data, encoding, *range(0, len(data), 1000))
    assert answers == []
    assert "10000" in why


def test_many_values_may_be_larger_together() -> None:
    data = msgpack.packb([{"job_id": "A", "status": 200, "message": "x" * 5000}] * 10)
    answers, why = read(data, "msgpack", *range(0, len(data), 700))
    assert (len(answers), why) == (10, "")


@pytest.mark.parametrize(
    ("said", "report"),
    [
        ({"type": "success"}, Report(status=200)),
        ({"type": "success", "result": [1]}, Report(status=200, result=b"\x91\x01")),
        ({"type": "success", "finished_at": "2026-01-01T00:00:00Z", "extra": 1}, Report(status=200)),
        ({"type": "failure"}, Report(status=500)),
        ({"type": "failure", "reason": "timeout"}, Report(status=504, reason="timeout")),
        (
            {"type": "failure", "reason": "other", "should_retry": False, "error": {"a": 1}, "message": "m"},
            Report(status=400, should_retry=False, error=b"\x81\xa1a\x01", message="m"),
        ),
        (
            {"type": "failure", "should_retry": True, "retry_after": 1.5},
            Report(status=500, should_retry=True, retry_after_s=1.5),
        ),
        ({"status": 102, "retry_after": 3}, Report(status=102, retry_after_s=3.0)),
        ({"status": 204}, Report(status=204)),
        ({"status": 503, "type": "failure", "should_retry": False}, Report(status=503, should_retry=False)),
        ({"status": 422, "type": "success"}, Report(status=422)),
        (
            {"type": "snooze", "retry_after": 60, "message": "m"},
            Report(status=102, reason="snooze", retry_after_s=60, message="m"),
        ),
        ({"type": "failure", "log": "said"}, Report(status=500, log="said")),
    ],
)
@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_outcomes(said: dict[str, Any], report: Report, encoding: Encoding) -> None:
    outcome = {"job_id": "A", **said}
    data = msgpack.packb(outcome) if encoding == "msgpack" else json.dumps(outcome).encode()
    assert decode_answer(data, encoding) == JobReport("A", report)


@pytest.mark.parametrize(
    "jobs", [{"jobs": [{"name": "next"}]}, {"jobs": {"name": "next"}}], ids=["a list", "whatever else"]
)
def test_jobs_that_follow_are_taken_as_they_are_told(jobs: dict[str, Any]) -> None:
    follows = msgpack.packb(jobs["jobs"])
    assert decode_answer(msgpack.packb({"job_id": "A", "status": 200, **jobs}), "msgpack") == JobReport(
        "A", Report(follows=follows)
    )
    nothing: list[Any] = [[], None]
    for none in nothing:
        data = msgpack.packb({"job_id": "A", "status": 200, "jobs": none})
        assert decode_answer(data, "msgpack") == JobReport("A", Report())


def test_what_names_a_job_is_blamed_on_it() -> None:
    said = decode_answer(msgpack.packb({"id": "A", "status": 200, "should_retry": "yes"}), "msgpack")
    assert isinstance(said, JobReport)
    assert (said.job_id, said.report.status) == ("A", 500)
    none = "INVALID_RESPONSE: the worker answered what is no outcome"
    assert said.report.message.startswith(f"{none}: should_retry must be true or false, not 'yes'; mend the worker")
    for nobody in ({"job_id": 5, "status": 200}, {"status": "x"}, [1], None):
        assert isinstance(decode_answer(msgpack.packb(nobody), "msgpack"), Unclear)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ({"status": "ok"}, "status must be a whole number, not 'ok'"),
        ({"status": 200, "message": 5}, "message must be text, not 5"),
        ({"status": 200, "log": ["x"] * 3}, "log must be text, not an array of 3"),
        (
            {"result": ["x" * 9_000], "type": "done"},
            "type must be one of success, failure, snooze, refused, started, not",
        ),
        ({"status": ["x" * 9_000]}, "status must be a whole number, not "),
        ({"batchItemFailures": 3}, "batchItemFailures must be an array, not 3"),
        ({"result": 1}, "neither `type` nor `status` is given"),
    ],
)
def test_what_is_wrong_with_an_outcome_is_told_in_our_words(
    outcome: dict[str, Any], why: str, encoding: Encoding
) -> None:
    told = {"job_id": "A", **outcome}
    said = decode_answer(msgpack.packb(told) if encoding == "msgpack" else json.dumps(told).encode(), encoding)
    assert isinstance(said, JobReport)
    assert said.report.message.startswith(f"INVALID_RESPONSE: the worker answered what is no outcome: {why}")
    assert said.report.message.endswith("; mend the worker: what it may answer stands in docs/use/WORKERS.md")


def test_a_job_handed_back_and_one_that_begins() -> None:
    for said, told in (
        ({"job_id": "A", "type": "refused", "status": 200}, Refused("A")),
        ({"id": "A", "type": "refused", "retry_after": 2}, Refused("A", 2.0)),
        ({"id": "A", "type": "refused", "message": "full"}, Refused("A")),
        ({"id": "A", "type": "refused", "interrupted": True, "message": "m"}, Refused("A", None, "m")),
        ({"id": "A", "type": "refused", "interrupted": True}, Refused("A", None, "handed back")),
        ({"type": "started"}, Started(None)),
        ({"job_id": "", "id": "A", "type": "started"}, Started("")),
    ):
        assert decode_answer(msgpack.packb(said), "msgpack") == told
        assert decode_answer(json.dumps(said).encode(), "json") == told


def test_item_failures() -> None:
    some = {"batchItemFailures": [{"itemIdentifier": "A"}, {"itemIdentifier": "B"}]}
    assert decode_answer(json.dumps(some).encode(), "json") == ItemFailures(("A", "B"))
    assert decode_answer(b'{"batchItemFailures": null}', "json") == ItemFailures(())
    # A key that is misspelt or missing is no id of the batch, so it spoils the whole: better twice than never.
    assert decode_answer(b'{"batchItemFailures": [{"ItemId": "A"}]}', "json") == ItemFailures(("",))


def test_media_types() -> None:
    for text in ("", "application/msgpack", "APPLICATION/X-MSGPACK; x=y", "application/vnd.msgpack"):
        assert encoding_of(text) == "msgpack"
    for text in ("application/json; charset=utf-8", "application/x-ndjson"):
        assert encoding_of(text) == "json"
    for text in ("text/html", "application/octet-stream", "json"):
        with pytest.raises(AnswerGarbled, match="answer in application/msgpack"):
            encoding_of(text)


def sending(style: StyleName, *held: Held, url: str = "http://h/run", jobtype: str = "mail") -> Sending:
    worker = Worker(name="w", id="W", url=url, max_jobs=9, style=style, registered_at_ms=0)
    return Sending(worker, jobtype, held, "b", "D", 0)


@given(packed)
def test_arguments_travel_as_they_are(argument: Any) -> None:
    data = msgpack.packb(argument)
    held = Held(Job("A", "mail", data, timeout=1.5, created_at_ms=1), 3, 1)
    for name in ("native", "lightjq"):
        assert data in STYLES[name].request(sending(name, held)).body


def test_headers_stay_headers() -> None:
    for name, style in STYLES.items():
        told = sending(name, Held(Job("A", "m"), 3, 1), jobtype="ünïcode/mail%\r\nX: y")
        assert headers_of(style.request(told))["JQD-Job-Type"] == "%C3%BCn%C3%AFcode/mail%25%0D%0AX: y"


def test_where_it_is_sent_and_how_a_cancel_is_told() -> None:
    held = Held(Job("A", "mail", timeout=1.5), 3, 1)
    native, light = sending("native", held), sending("lightjq", held, url="http://h/run/")
    assert STYLES[native.worker.style].request(native)[:2] == ("POST", "http://h/run")
    assert STYLES[light.worker.style].request(light)[:2] == ("POST", "http://h/run/worker-job")
    cancel = STYLES[native.worker.style].cancel(native, "A/B")
    assert cancel is not None
    assert headers_of(cancel)["JQD-Batch-Id"] == native.batch_id, "the job may come again, with other content"
    assert (cancel.method, cancel.url, cancel.body) == ("DELETE", "http://h/run?job_id=A%2FB", b"")
    assert STYLES[light.worker.style].cancel(light, "A") is None


def judged(style: StyleName, judgement: Judgement) -> set[int]:
    return {status for status in range(100, 600) if STYLES[style].judge(status) is judgement}


def test_judgements() -> None:
    assert judged("native", Judgement.READ) == {*range(200, 300)} - {202}
    assert judged("native", Judgement.LATER) == {202}
    assert judged("native", Judgement.NOT_TAKEN) == set()
    assert judged("lightjq", Judgement.READ) == set()
    assert judged("lightjq", Judgement.LATER) == {*range(200, 300)}
    assert judged("lightjq", Judgement.NOT_TAKEN) == {404}
    for style in STYLES:
        assert judged(style, Judgement.BACK_OFF) == {408, 425, 429, 503}
        assert judged(style, Judgement.GONE) == {410}
        special = {408, 410, 425, 429} | judged(style, Judgement.NOT_TAKEN)
        special |= {404, 405, 415} if style == "webhook" else set()
        assert judged(style, Judgement.FAILED) == {*range(400, 500)} - special
        assert judged(style, Judgement.MISPLACED) == ({404, 405, 415} if style == "webhook" else set())
        assert judged(style, Judgement.ERROR) == {*range(100, 200), *range(300, 400), *range(500, 600)} - {503}
    for style in ("webhook", "lines"):
        assert judged(style, Judgement.READ) == {*range(200, 300)}


def test_every_style_a_worker_may_have_is_there() -> None:
    assert set(STYLES) == set(get_args(StyleName))


def test_nil_is_what_an_absent_value_is() -> None:
    said = decode_answer(msgpack.packb({"job_id": "A", "status": 200, "result": None}), "msgpack")
    assert isinstance(said, JobReport)
    assert (said.report.result, said.report.error) == (NIL, NIL)
