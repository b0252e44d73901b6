import json
import re

import msgspec
import pytest

from jqd.api.compat.lightjq import AnyQuery
from jqd.api.decode import YES, Flag, Seconds, query_of, read_query
from jqd.api.problems import Problem
from jqd.api.route import NoQuery
from jqd.domain.errors import Invalid
from jqd.http import Request, RequestHead, answer


def test_messagepack_is_passed_through_untouched():
    odd = b"\xd9\x01a"
    assert answer(200, {"v": msgspec.Raw(odd)}, "msgpack").body.endswith(odd)


def test_json_says_it_in_forms():
    assert json.loads(answer(200, {"v": msgspec.Raw(b"\xc4\x01\x00")}, "json").body) == {"v": {"$bytes": "AA=="}}


@pytest.mark.parametrize(
    ("accept", "kind", "language"),
    [
        ("", "", "json"),
        ("*/*", "", "json"),
        ("*/*", "application/x-msgpack", "msgpack"),
        ("application/json", "application/msgpack", "json"),
        ("application/vnd.msgpack", "application/json", "msgpack"),
        ("", "application/x-ndjson", "json"),
        ("application/msgpack;q=0", "application/msgpack", "json"),
        ("application/json;q=0, */*", "application/json", "msgpack"),
        ("application/msgpack;q=0.1, application/json", "", "json"),
        ("application/msgpack, application/json", "application/json", "msgpack"),
        ("application/json, */*", "application/msgpack", "json"),
        ("application/problem+json; q=1, application/msgpack; q=x", "", "msgpack"),
        ("application/msgpack;q=0, application/json;q=0", "application/msgpack", "msgpack"),
        ("text/html", "application/msgpack", "msgpack"),
        (",;q=", "", "json"),
    ],
)
def test_the_language_of_the_answer(accept, kind, language):
    request = Request(RequestHead("GET", "/", "/", b"", {"accept": accept, "content-type": kind}), body=b"")
    assert request.answer_language() == language


@pytest.mark.parametrize("query", [b"\xff=1", b"&".join([b"a"] * 40)])
def test_a_query_that_cannot_be_read(query):
    with pytest.raises(Problem) as caught:
        query_of(Request(RequestHead("GET", "/", "/", query, {}), body=b""))
    assert caught.value.status == 400


def test_the_last_of_a_name_wins():
    assert query_of(asked(b"a=1&b=%ff&a=")) == [
        ("a", "1"),
        ("b", "\ufffd"),
        ("a", ""),
    ]


def asked(query: bytes) -> Request:
    return Request(RequestHead("GET", "/", "/", query, {}), body=b"")


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of no call."""

    a: Flag = "0"
    wait: Seconds = 0.0


def test_flags_are_said_in_four_ways():
    told = [read_query(asked(b"a=" + text), Query).a in YES for text in (b"1", b"true", b"0", b"false")]
    assert told == [True, True, False, False]
    assert read_query(asked(b""), Query).a not in YES
    for text in (b"a", b"a=", b"a=no", b"a=yes", b"a=TRUE", b"a=2", b"a=%00"):
        with pytest.raises(Invalid, match="a must be one of true, false, 1, 0, not '") as caught:
            read_query(asked(text), Query)
        assert caught.value.faults == (), "a pointer leads into a body"


def test_names_nobody_reads_are_refused():
    for kind, text in ((Query, "did you mean 'wait'?"), (NoQuery, "this call has none")):
        with pytest.raises(Invalid, match=f"there is no query parameter 'wiat'; {re.escape(text)}"):
            read_query(asked(b"wiat=1"), kind)
    assert read_query(asked(b"wiat=1"), AnyQuery) == AnyQuery()


@pytest.mark.parametrize("query", [b"a=1&a=1", b"a=0&A=1&a=1", b"b=%61&a=0&a"])
def test_a_name_that_stands_twice_is_refused_where_names_are_known(query):
    with pytest.raises(Invalid, match="'a' stands in the query more than once"):
        read_query(asked(query), Query)
    assert read_query(asked(query), AnyQuery) == AnyQuery()
