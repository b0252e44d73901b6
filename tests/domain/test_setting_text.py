"""What a setting's text means, by its type."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from jqd.domain.setting_text import PASSWORD, read
from jqd.domain.units import Count, Seconds

Share = Annotated[float, Meta(ge=0, le=1, description="0 to 1")]
Word = Literal["a", "b", "c"]
Names = Annotated[
    tuple[Annotated[str, Meta(pattern="^[a-z]+$")], ...], Meta(description="a list of names in small letters")
]


@pytest.mark.parametrize(
    ("hint", "value", "means"),
    [
        (bool, "YES", True),
        (bool, "", False),
        (Count, "64", 64),
        (Count, 5.0, 5),
        (Count | None, "", None),
        (Seconds, "5m", 300.0),
        (Seconds, 2, 2.0),
        (Share, 1, 1.0),
        (Path, "~", Path.home()),
        (Path | None, None, None),
        (Word, "b", "b"),
        (Names, "a b", ("a", "b")),
        (Names, '["a"]', ("a",)),
        (Names, ["a"], ("a",)),
    ],
)
def test_what_is_said_is_meant(hint: Any, value: Any, means: Any) -> None:
    found = read(hint, value, "some_s")
    assert (found, type(found)) == (means, type(means))


@pytest.mark.parametrize(
    ("hint", "value", "told"),
    [
        (bool, "perhaps", "= 'perhaps' is no truth value: say true or false"),
        (Count, "1.5", "= '1.5' is no whole number: it has a fraction"),
        (Count, True, "= True is no whole number: a truth value is no number"),
        (Count | None, "0", "must be 1 or more, and at most 1,000,000,000, not '0'"),
        (Seconds, 0, "must be above 0, and at most ten years, not 0"),
        (Seconds, "inf", "= 'inf' is no number: write one like 90"),
        (Share, 2, "must be 0 to 1, not 2"),
        (Word, "d", "must be one of a, b, c, not 'd'"),
        (Names, "a B", "must be a list of names in small letters, not 'a B'"),
        (Names, "[5]", "= '[5]' is no list of texts: write one like"),
        (str, 5, "= 5 is no text: write it in quotes"),
        (Path, "~nobody-here/d", "= '~nobody-here/d' is no path: nobody here has that home directory"),
    ],
)
def test_what_is_wrong_is_told_with_its_value_and_what_is_allowed(hint: Any, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        read(hint, value, "some_s")


@given(st.sampled_from([bool, Count, Seconds, Share, Word, Names, Path | None]), st.text() | st.floats() | st.none())
def test_whatever_is_said_is_read_or_refused_in_words(hint: Any, value: Any) -> None:
    try:
        read(hint, value, "some_s")
    except ValueError as error:
        told = str(error)
    else:
        return
    assert repr(value) in told or PASSWORD.search(value)
