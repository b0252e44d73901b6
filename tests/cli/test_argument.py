"""What a job is given: JSON when it is JSON, else the text itself."""

import io
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.cli.argument import argument, arguments, value
from jqd.cli.exits import Usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_means_what_it_says(meant: object) -> None:
    assert value(json.dumps(meant), "it") == meant


@given(st.text())
def test_any_text_is_a_value(text: str) -> None:
    try:
        meant = value(text, "it")
    except Usage:  # a number no MessagePack holds, half of a character, or half of a list
        return
    assert meant == text or msgspec.json.decode(text) == meant
    msgspec.msgpack.encode(meant)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "01", "'x'", "", " ", "tr ue", "a {b}"])
def test_what_is_no_json_means_itself(text: str) -> None:
    assert value(text, "it") == text


@pytest.mark.parametrize("text", ['{"path": 1', "[1,", ' "x', "[" * 5_000, "[draft] hello"])
def test_what_begins_like_json_and_is_none_is_refused_with_the_way_to_say_it(text: str) -> None:
    with pytest.raises(Usage, match=r"it begins like JSON but is not JSON .* --text"):
        value(text, "it")
    assert value(text, "it", as_text=True) == text


def test_what_messagepack_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(Usage, match=r"it cannot be sent as MessagePack"):
        value("123456789012345678901234567890", "it")


def test_a_file_gives_its_text_without_the_last_newline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"two\nlines\r\n")
    assert argument(f"@{file}") == "two\nlines"
    monkeypatch.setattr("sys.stdin", io.StringIO("[1]\n"))
    assert argument("-") == [1]
    assert argument(None) is None
    file.write_bytes(b"\xff")
    with pytest.raises(Usage, match="no UTF-8"):
        argument(f"@{file}")
    with pytest.raises(Usage, match="Is a directory"):
        argument(f"@{tmp_path}")


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=20))
def test_only_a_newline_ends_a_line(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    file = tmp_path_factory.getbasetemp() / "lines"
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    wanted = []
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\r")
        if text.strip():
            try:
                wanted.append((number, value(text, "")))
            except Usage:
                return
    assert [(line.number, line.argument) for line in arguments(file)] == wanted


def test_a_line_says_how_far_the_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text('"ä"\n\n2\r\n3')
    assert [line[:3] for line in arguments(file)] == [(1, "ä", 5), (3, 2, 9), (4, 3, 10)]


def test_a_wrong_line_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n\n" + "9" * 30)
    read = arguments(file)
    assert next(read)[1] == 1
    with pytest.raises(Usage, match="lines line 3 cannot be sent"):
        next(read)
