"""What sh answers, and what lines ask for: text in, meaning out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.code.output import LOG_BYTES_MAX, JobOutput
from jqd.code.shell import LineAnswer, read_batch, read_one
from jqd.domain.followers import FOLLOWERS_MAX
from jqd.domain.job_lines import is_job, job_of


@pytest.mark.parametrize(
    ("printed", "answers"),
    [
        (b"200 ok\n404 gone\n", [(200, "ok"), (404, "gone")]),
        (b"# a comment\n\n 200 ok\n+0100 later", [(200, "ok"), (100, "later")]),
        (b"200 ok\n", [(200, "ok")]),
        (b"99999 much\n7", [(999, "much"), (7, "")]),
        (b"200\n200\n200 of nobody\n", [(200, ""), (200, "")]),
    ],
)
def test_a_line_for_each_job(printed: bytes, answers: list[tuple[int, str]]) -> None:
    assert [one[:2] for one in read_batch(printed, 2, is_whole=True)] == answers


def test_a_bad_line_is_bad_for_all_after_it() -> None:
    one, two, three = read_batch(b"200 ok\nok 200\n200 ok\n", 3, is_whole=True)
    assert one.status == 200
    assert (two, two.status) == (three, 500)
    assert two.text.startswith("INVALID_RESPONSE: the code printed the line 'ok 200'")


def test_a_line_without_an_end_counts_only_if_the_process_ended_by_itself() -> None:
    assert read_batch(b"200 a\n200", 2, is_whole=False) == [LineAnswer(200, "a")]


def test_new_jobs_follow_the_next_success_or_the_last() -> None:
    printed = b"J: a|1\n500 no\n#J: b|2|3\n200 yes\nJ: c\n400 no\nJ: d|\n"
    no, yes, other = read_batch(printed, 3, is_whole=True)
    assert (no.follows, other.follows) == ((), ())
    a, b, c, d = yes.follows
    assert (a, b) == ({"name": "a", "argument": "1"}, {"name": "b", "argument": "2|3"})
    assert (c, d) == ({"name": "c"}, {"name": "d", "argument": ""})
    assert read_batch(b"J: a|1\n500 no\n", 1, is_whole=True)[0].follows == (), "without a success nothing follows"


def test_of_more_jobs_than_can_follow_so_many_are_kept_that_they_are_refused() -> None:
    """Of 16 MiB of them a slot was held for hours, and the worker took 700 MiB."""
    many, large = b"J: a\n" * 300_000, (b"J: a|" + b"x" * 700_000 + b"\n") * 4
    for printed, kept in ((many, FOLLOWERS_MAX + 1), (large, 2)):
        output = JobOutput(16 << 20)
        output.printed(printed)
        (first, second) = read_batch(b"200\n" + printed + b"200\n" + printed, 2, is_whole=True)
        one = read_one(printed, 0, "")
        assert [len(each.follows) for each in (output, first, second, one)] == [kept, 0, 2 * kept, kept]


@pytest.mark.parametrize(
    ("printed", "code", "answer"),
    [
        (b"hello\nworld\n", 0, (200, "hello\nworld")),
        (b"", 0, (200, "")),
        (b"404 nothing\nmore", 0, (404, "nothing")),
        (b"2000 files\n", 0, (200, "2000 files")),
        (b"oh\n", 3, (500, "oh\nit exited with 3")),
        (b"", 1, (500, "it exited with 1")),
        (b"200 done\n", 1, (200, "done")),
        (b"# said\nJ: x|1\nfine", 0, (200, "fine")),
    ],
)
def test_one_job_may_do_without_a_status(printed: bytes, code: int, answer: tuple[int, str]) -> None:
    assert read_one(printed, code, f"it exited with {code}")[:2] == answer


def test_the_end_of_what_is_printed_is_kept_in_whole_lines() -> None:
    output = JobOutput(1 << 20)
    output.printed(b"one\ntw")
    assert output.log == (0, "one")
    output.printed(b"o\n")
    assert (output.log, output.since(4)) == ((0, "one\ntwo"), (4, "two"))
    assert output.since(8) == (8, "")
    for _ in range(1_000):
        output.complained(b"x" * 99 + b"\n")
    start, text = output.log
    assert start + len(text) + 1 == 8 + 100 * 1_000
    assert len(text) < LOG_BYTES_MAX
    assert {len(one) for one in text.split("\n")} == {99}


@pytest.mark.parametrize("begun", [b"", b"start\n"])
@pytest.mark.parametrize("size", [LOG_BYTES_MAX, 100_000])
def test_of_a_line_longer_than_what_is_kept_its_end_is(begun: bytes, size: int) -> None:
    output = JobOutput(1 << 20)
    output.printed(begun + b"\xc3\xbc" * (size // 2))
    assert output.log.text == "", "it may go on"
    output.end()
    start, text = output.log
    assert (start + len(text.encode()) + 1, set(text)) == (len(begun) + size + 1, {"\xfc"})
    assert len(text.encode()) > LOG_BYTES_MAX - 4
    assert output.since(start) == output.log
    output.printed(b"end\n")
    assert output.log.text == "end"


def test_jobs_are_asked_for_on_standard_output_in_pieces_and_not_without_bound() -> None:
    output = JobOutput(2_000_000)
    for piece in (b"J", b": a", b"|1\nnoise\n#J: b|2\nJ: c|3"):
        output.printed(piece)
    output.complained(b"J: d|4\n")
    output.printed(b"\n")
    assert [one["name"] for one in output.follows] == ["a", "b", "c"]
    output.printed(b"J: " + b"x" * 1_500_000)
    output.printed(b"x" * 600_000 + b"\n")
    assert output.is_too_much


PIECES = st.tuples(st.booleans(), st.sampled_from([b"J: a|1", b"#J", b": ", b"x", b"\n"]))


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=8))
def test_standard_output_alone_says_which_jobs_follow_however_the_streams_mix(pieces: list[tuple[bool, bytes]]) -> None:
    output = JobOutput(1 << 20)
    for is_error, data in pieces:
        (output.complained if is_error else output.printed)(data)
    output.end()
    lines = b"".join(data for is_error, data in pieces if not is_error).split(b"\n")
    assert output.follows == [job_of(line) for line in lines if is_job(line)]
    whole = b"".join(data for _, data in pieces)
    assert output.log == (0, whole.decode().removesuffix("\n")), "nothing is added but the end of a last line"
