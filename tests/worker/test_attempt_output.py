"""What an attempt says: the last of it is kept, and told once."""

from types import SimpleNamespace
from typing import cast

import pytest

from jqd import Context
from jqd.worker.attempt_output import OUTPUT_BYTES_MAX, AttemptOutput, Output
from jqd.worker.batch import Item


def test_the_last_lines_are_kept() -> None:
    output = Output()
    for number in range(20_000):
        output.add(f"line {number} ü")
    text = output.text()
    assert OUTPUT_BYTES_MAX - 20 < len(text.encode()) < OUTPUT_BYTES_MAX
    assert text.endswith("line 19998 ü\nline 19999 ü")
    output.add("x" * 9 * OUTPUT_BYTES_MAX)
    assert len(output.text()) == OUTPUT_BYTES_MAX - 1
    output.add("\ud800 alone")
    assert output.text() == "\\ud800 alone"


def test_what_is_fresh_is_told_once() -> None:
    output = Output()
    output.add("a")
    output.add("b")
    assert (output.fresh(), output.fresh()) == ((0, "a\nb"), (0, ""))
    output.add("c")
    for number in range(OUTPUT_BYTES_MAX):
        output.add(f"{number}")
    missed, text = output.fresh()
    assert text == output.text(), "what was pushed out meanwhile nobody hears"
    assert missed + len(text) == len("c\n") + sum(len(f"{number}\n") for number in range(OUTPUT_BYTES_MAX)) - 1


def test_every_byte_that_was_printed_has_its_place() -> None:
    output = Output()
    for line in ("one", "zwölf", "", "last"):
        output.add(line)
    assert output.since() == (0, "one\nzwölf\n\nlast")
    assert output.since(4) == (4, "zwölf\n\nlast")
    assert output.since(5) == (11, "\nlast"), "whole lines"
    assert output.since(17) == (17, "")
    assert output.since(bytes_max=6) == (11, "\nlast")
    output.skip(100)
    output.add("x" * 3 * OUTPUT_BYTES_MAX)
    start, text = output.since()
    assert start + len(text) + 1 == 117 + 3 * OUTPUT_BYTES_MAX + 1
    start, text = output.since(bytes_max=5)
    assert (start, text) == (117 + 3 * OUTPUT_BYTES_MAX - 4, "x" * 4)


def test_prints_become_lines() -> None:
    told: list[str] = []
    output = AttemptOutput(write=told.append)
    for piece in ("one", " line\ntwo\nthr", "ee"):
        output.printed(piece)
    assert told == ["one line", "two"]
    output.over()
    output.over()
    assert told == ["one line", "two", "three"]
    output.printed("." * OUTPUT_BYTES_MAX)
    assert len(told) == 4, "a line that never ends is not kept for ever"


def test_progress_goes_from_0_to_1() -> None:
    output = AttemptOutput()
    item = SimpleNamespace(cancelled=False, get_output=lambda: output)
    context = Context("id", "name", 1, 0, 0, of=cast("Item", item))
    context.progress(0.5, "x" * 999)
    assert context.output.far == (0.5, "x" * 200)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            context.progress(wrong)
