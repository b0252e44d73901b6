"""What an attempt says: the last of it is kept, and told once."""

import pytest

from jqd import Context
from jqd.worker.attempt_output import OUTPUT_BYTES_MAX, AttemptOutput, Output


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
    assert (output.fresh(), output.fresh()) == ("a\nb", "")
    output.add("c")
    for number in range(OUTPUT_BYTES_MAX):
        output.add(f"{number}")
    assert output.fresh() == output.text(), "what was pushed out meanwhile nobody hears"


def test_prints_become_lines() -> None:
    told: list[str] = []
    voice = AttemptOutput(write=told.append)
    for piece in ("one", " line\ntwo\nthr", "ee"):
        voice.printed(piece)
    assert told == ["one line", "two"]
    voice.over()
    voice.over()
    assert told == ["one line", "two", "three"]
    voice.printed("." * OUTPUT_BYTES_MAX)
    assert len(told) == 4, "a line that never ends is not kept for ever"


def test_progress_goes_from_0_to_1() -> None:
    context = Context("id", "name", 1, 0, 0)
    context.progress(0.5, "x" * 999)
    assert context.voice.far == (0.5, "x" * 200)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            context.progress(wrong)
