"""Media types: what is sent is understood, however its name is written."""

from hypothesis import given
from hypothesis import strategies as st

from jqd.domain import media
from jqd.domain.media import JSON_TYPES, MSGPACK_TYPES, NDJSON_TYPES

KNOWN = sorted(MSGPACK_TYPES | JSON_TYPES | NDJSON_TYPES | {media.PROBLEM})


@given(st.sampled_from(KNOWN), st.sampled_from(["", "; charset=utf-8", ";q=1; x"]), st.booleans())
def test_parameters_and_case_change_nothing(kind: str, parameters: str, loud: bool) -> None:
    written = f" {kind.upper() if loud else kind} {parameters}"
    assert media.bare(written) == kind
    assert media.language_of(written) == ("msgpack" if kind in MSGPACK_TYPES else "json")


@given(st.text())
def test_what_is_neither_has_no_language(text: str) -> None:
    assert (media.language_of(text) is None) == (media.bare(text) not in KNOWN)
