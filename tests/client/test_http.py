"""One request: which broken ones are repeated, and which error each answer becomes."""

import random
import ssl
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client.errors import (
    ClientClosed,
    Conflict,
    Forbidden,
    Invalid,
    ItemError,
    JqdClientError,
    NotFound,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
    WrongToken,
    WrongUrl,
)
from jqd.client.http import TRIES_MAX, Http
from tests.harness.handled import Handled

URL = "http://daemon.test:7420"


class Wire:
    """A transport that does what it is told, in order, and counts."""

    def __init__(self, *acts: Exception | httpx2.Response) -> None:
        self.acts = list(acts)
        self.requests: list[httpx2.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        act = self.acts.pop(0)
        if isinstance(act, Exception):
            raise act
        return act

    def http(self, token: str | None = None, urls: str = URL) -> Http:
        transport = Handled(self)
        return Http(
            urls, timeout_s=1, token=token, transport=transport, source=random.Random(1), sleep=self.slept.append
        )


def packed(status: int, body: object, **headers: str) -> httpx2.Response:
    told = {"content-type": "application/msgpack"} | {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx2.Response(status, content=msgspec.msgpack.encode(body), headers=told)


UNSENT = [httpx2.ConnectError("refused"), httpx2.ConnectTimeout("slow"), httpx2.PoolTimeout("busy")]


@pytest.mark.parametrize("error", UNSENT, ids=lambda error: type(error).__name__)
def test_a_request_that_was_not_sent_is_repeated(error: Exception) -> None:
    wire = Wire(error, error, packed(201, {"job_id": "a"}))
    assert wire.http().call("POST", "/v1/jobs", body=b"x", repeatable=False).body == {"job_id": "a"}
    assert len(wire.requests) == 3
    assert len(wire.slept) == 2
    assert wire.slept[1] > wire.slept[0]


def test_repeating_is_bounded_and_the_error_says_that_nothing_was_sent() -> None:
    wire = Wire(*[httpx2.ConnectError("Connection refused")] * 10)
    with pytest.raises(
        Unreachable, match=r"no daemon answers at http://daemon\.test:7420 .*refused.*nothing was sent"
    ) as caught:
        wire.http().call("POST", "/v1/jobs", body=b"x")
    assert not caught.value.sent
    assert len(wire.requests) == TRIES_MAX


TWO = "http://one.test:1, http://two.test:2"


@pytest.mark.parametrize(
    ("act", "repeatable", "again"),
    [
        (httpx2.ConnectError("refused"), False, True),
        (httpx2.ReadError("reset"), True, True),
        (httpx2.ReadError("reset"), False, False),
        (httpx2.ReadTimeout("slow"), True, True),
        (httpx2.ReadTimeout("slow"), False, False),
        (packed(503, {"detail": "draining"}), True, True),
        (packed(503, {"detail": "draining"}), False, False),
        (packed(409, {"detail": "other content"}), True, False),
    ],
)
def test_the_next_daemon_is_asked_where_twice_counts_as_once(act: Any, repeatable: bool, again: bool) -> None:
    wire = Wire(act, packed(201, {"job_id": "a"}), packed(200, {}))
    http = wire.http(urls=TWO)
    if not again:
        with pytest.raises(JqdClientError):
            http.call("POST", "/v1/jobs", body=b"x", repeatable=repeatable)
        return
    assert http.call("POST", "/v1/jobs", body=b"x", repeatable=repeatable).status == 201
    http.call("GET", "/v1/jobs/a")
    assert [request.url.host for request in wire.requests] == ["one.test", "two.test", "two.test"], "it stays there"
    assert not wire.slept
    assert http.url == "http://two.test:2"


def test_a_pause_is_made_when_no_daemon_was_left_and_the_rounds_are_bounded() -> None:
    wire = Wire(*[httpx2.ConnectError("refused")] * 20)
    with pytest.raises(Unreachable):
        wire.http(urls=TWO).call("POST", "/v1/jobs", body=b"x")
    assert (len(wire.requests), len(wire.slept)) == (2 * TRIES_MAX, TRIES_MAX - 1)
    wire = Wire(*[packed(503, {"detail": "the store is away"})] * 5)
    with pytest.raises(Unavailable):
        wire.http(urls=TWO).call("GET", "/v1/jobs/a")
    assert len(wire.requests) == 2


BROKEN = [httpx2.ReadError("reset"), httpx2.WriteError("pipe"), httpx2.RemoteProtocolError("closed")]


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
def test_a_request_that_may_have_arrived_is_repeated_only_when_twice_counts_as_once(error: Exception) -> None:
    wire = Wire(error)
    with pytest.raises(Unreachable, match="may have arrived") as caught:
        wire.http().call("POST", "/v1/jobs", body=b"x", repeatable=False)
    assert caught.value.sent
    assert not wire.slept

    wire = Wire(error, packed(200, {"job_id": "a", "duplicate": True}))
    assert wire.http().call("POST", "/v1/jobs", body=b"x", repeatable=True).status == 200


def test_what_tls_says_of_a_connection_in_use_is_no_proof_that_nothing_arrived() -> None:
    """But where a certificate is asked for and none was shown: nothing is read of who shows none."""
    for reason, sent in (("RECORD_LAYER_FAILURE", True), ("TLSV13_ALERT_CERTIFICATE_REQUIRED", False)):
        cause = ssl.SSLError(1, reason)
        cause.reason = reason
        error = httpx2.ReadError("broken")
        error.__cause__ = cause
        with pytest.raises(Unreachable) as caught:
            Wire(error).http(urls="https://a.example").call("POST", "/v1/jobs", body=b"x", repeatable=False)
        assert caught.value.sent is sent


@pytest.mark.parametrize("url", ["http://a.example", "https://a.example"])
def test_what_a_program_was_handling_when_it_pushed_is_no_proof_that_nothing_arrived(url: str) -> None:
    """A fallback within `except`: what is handled there stands behind the new error, as its context."""
    handled = ssl.SSLError(1, "asked for")
    handled.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    broken = httpx2.ReadError("broken")
    broken.__cause__ = ConnectionResetError()
    broken.__cause__.__context__ = handled
    with pytest.raises(Unreachable) as caught:
        Wire(broken).http(urls=url).call("POST", "/v1/jobs", body=b"x", repeatable=False)
    assert caught.value.sent


def test_where_no_daemon_listens_one_traceback_says_so() -> None:
    cause = ConnectionRefusedError(111, "Connection refused")
    refused = httpx2.ConnectError("[Errno 111] Connection refused")
    refused.__cause__ = cause
    with pytest.raises(Unreachable, match=r"no daemon answers at .* Connection refused") as caught:
        Wire(*[refused] * 9).http().call("POST", "/v1/jobs", body=b"x", repeatable=False)
    assert (caught.value.sent, caught.value.__cause__, caught.value.__suppress_context__) == (False, None, True)


@pytest.mark.parametrize(("method", "repeatable"), [("GET", True), ("POST", False)])
def test_a_slow_answer_is_a_timeout_and_not_repeated(method: str, repeatable: bool) -> None:
    wire = Wire(httpx2.ReadTimeout("slow"))
    with pytest.raises(TimedOut, match="within 1 s") as told:
        wire.http().call(method, "/v1/jobs/a", repeatable=repeatable)
    assert ("may have taken" in str(told.value)) == (method == "POST"), "a look changes nothing"


STATUSES: list[tuple[int, type[JqdClientError]]] = [
    (400, Invalid),
    (401, Forbidden),
    (403, Forbidden),
    (404, NotFound),
    (409, Conflict),
    (413, TooLarge),
    (414, Invalid),
    (415, Invalid),
    (422, Invalid),
    (429, Unavailable),
    (500, JqdClientError),
    (503, Unavailable),
    (507, Unavailable),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_each_status_has_its_error(status: int, kind: type[JqdClientError]) -> None:
    wire = Wire(packed(status, {"title": "Short", "detail": "why it was so"}))
    with pytest.raises(JqdClientError, match=rf"why it was so \({status}\)") as caught:
        wire.http().call("GET", "/v1/stats")
    assert type(caught.value) is kind
    assert caught.value.status == status


def test_a_refusal_names_the_fields() -> None:
    told = [
        {"pointer": "/priority", "detail": "is not a number"},
        {"index": 3, "detail": "no name"},
        "odd",
        {"index": 4},
    ]
    with pytest.raises(Invalid, match="/priority is not a number") as caught:
        Wire(packed(422, {"detail": "Field wrong", "errors": told})).http().call("POST", "/v1/jobs", body=b"")
    first, second, third, fourth = caught.value.errors
    assert first == ItemError(pointer="/priority", detail="is not a number")
    assert second == ItemError(index=3, detail="no name")
    assert third.detail == "odd"
    assert fourth.index == 4


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("5", 5.0), ("0.5", 0.5), ("Sat, 21 Nov 2026 05:00:00 GMT", None), ("-1", None), ("inf", None)],
)
def test_unavailable_says_how_long_to_stay_away(header: str, seconds: float | None) -> None:
    with pytest.raises(Unavailable) as caught:
        Wire(packed(503, {"detail": "draining"}, retry_after=header)).http().call("POST", "/v1/jobs", body=b"")
    assert caught.value.retry_after == seconds


ODD: list[tuple[Callable[[], httpx2.Response], str]] = [
    (lambda: httpx2.Response(200, content=b"<html>", headers={"content-type": "text/html"}), "is it a jqd daemon"),
    (
        lambda: httpx2.Response(200, content=b"\xc1", headers={"content-type": "application/msgpack"}),
        "cannot be decoded",
    ),
    (lambda: httpx2.Response(404, content=b"page not found", headers={"content-type": "text/plain"}), "does a proxy"),
]


@pytest.mark.parametrize(("answer", "says"), ODD)
def test_what_is_no_answer_of_a_daemon_is_refused(answer: Callable[[], httpx2.Response], says: str) -> None:
    with pytest.raises(JqdClientError, match=says):
        Wire(answer()).http().call("GET", "/v1/stats")


def from_proxy(status: int) -> httpx2.Response:
    return httpx2.Response(status, content=b"<html>no answer</html>", headers={"content-type": "text/html"})


def test_a_proxy_that_lost_the_daemon_is_a_daemon_that_did_not_answer() -> None:
    wire = Wire(from_proxy(502), packed(201, {"job_id": "a"}))
    assert wire.http().call("POST", "/v1/jobs", body=b"").body == {"job_id": "a"}
    with pytest.raises(Unreachable, match="a proxy before it answered 502") as caught:
        Wire(from_proxy(502)).http().call("POST", "/v1/jobs", body=b"", repeatable=False)
    assert caught.value.sent


def test_a_proxy_that_waited_in_vain_is_a_daemon_that_did_not_answer_in_time() -> None:
    wire = Wire(from_proxy(504), packed(201, {"job_id": "a"}))
    assert wire.http(urls=TWO).call("POST", "/v1/jobs", body=b"").body == {"job_id": "a"}
    with pytest.raises(TimedOut, match="a proxy before it answered 504"):
        Wire(from_proxy(504)).http().call("POST", "/v1/jobs", body=b"")


@pytest.mark.parametrize("status", [404, 409])
@pytest.mark.parametrize("kind", ["", "text/html", "application/json"])
def test_what_a_proxy_says_is_not_found_or_in_conflict_says_nothing_of_a_job(status: int, kind: str) -> None:
    refused = httpx2.Response(status, content=b"{}" if kind else b"", headers={"content-type": kind} if kind else {})
    with pytest.raises(JqdClientError, match="no daemon's answer") as caught:
        Wire(refused).http().call("GET", "/v1/jobs/a")
    assert type(caught.value) is JqdClientError


def test_json_answers_are_understood_and_headers_sent() -> None:
    wire = Wire(httpx2.Response(200, content=b'{"a": 1}', headers={"content-type": "application/json"}))
    assert wire.http(token="secret").call("POST", "/v1/x", body=b"1").body == {"a": 1}
    headers = wire.requests[0].headers
    assert headers["authorization"] == "Bearer secret"
    assert headers["accept"] == headers["content-type"] == "application/msgpack"


@pytest.mark.parametrize(
    "url",
    ["localhost:7420", "127.0.0.1:7420", "ftp://a", "http://", "", "http://a:b", "http://a/v1", "http://a/v1/jobs"],
)
def test_a_client_is_not_made_for_what_is_no_url(url: str) -> None:
    with pytest.raises(WrongUrl, match=r"http://.* write one like http://127\.0\.0\.1:7420"):
        Http(url, timeout_s=1, token=None)


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/v1/schedules/" + "a" * 3_000_000, {}, 414),
        ("/v1/jobs", {"name": "a" * 100_000}, 414),
        ("/v1/jobs/\x00", {}, 414),
        ("/v1/jobs", {"name": "\udcff"}, 400),
    ],
    ids=["long path", "long query", "control character", "half of a character"],
)
def test_what_no_url_carries_is_refused_and_nothing_is_sent(path: str, params: dict[str, str], status: int) -> None:
    wire = Wire()
    asks: list[Callable[[], Any]] = [lambda: wire.http().call("PUT", path, params=params, body=b"")]
    if not params:
        asks.append(lambda: [*wire.http().lines(path, {}, quiet_s=1.0)])
    for ask in asks:
        with pytest.raises(Invalid, match="nothing was sent") as caught:
            ask()
        assert caught.value.status == status
        assert len(str(caught.value)) < 500
    assert wire.requests == []


@pytest.mark.parametrize("odd", [b"\x81\x80\x02", b"\xa2\xff\xfe"], ids=["{{}: 2}", "no UTF-8"])
@pytest.mark.parametrize("field", ["argument", "result", "error"])
def test_what_python_cannot_hold_of_a_users_value_hides_no_job(field: str, odd: bytes) -> None:
    answer = Wire(packed(200, {"job_id": "a", field: msgspec.Raw(odd)})).http().call("GET", "/v1/jobs/a")
    assert (answer.body["job_id"], bytes(answer.body[field])) == ("a", odd)
    with pytest.raises(JqdClientError, match="cannot be decoded"):
        Wire(packed(200, {"job_id": "a", "name": msgspec.Raw(odd)})).http().call("GET", "/v1/jobs/a")


@pytest.mark.parametrize("secret", ["hüsh", "hush\nhush", "hush\r"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(WrongToken, match="the token has characters that no HTTP header carries") as refused:
        Http("http://127.0.0.1:1", timeout_s=1, token=secret)
    assert "hush" not in str(refused.value)
    with pytest.raises(WrongToken, match="the name of the tenant has"):
        Http("http://127.0.0.1:1", timeout_s=1, token=None, tenant=secret)


def test_a_client_that_was_closed_says_so() -> None:
    wire = Wire(packed(200, {}))
    http = wire.http()
    http.close()
    view = http.speaking_for("acme")
    for ask in (http.call, view.call):
        with pytest.raises(ClientClosed, match="make another"):
            ask("GET", "/v1/me")
    with pytest.raises(ClientClosed):
        next(http.lines("/v1/events", {}, 1))
    assert wire.requests == []


def test_a_mistake_of_a_transport_is_not_taken_for_a_close() -> None:
    with pytest.raises(RuntimeError, match="mistake"):
        Wire(RuntimeError("a mistake")).http().call("GET", "/v1/me")


STRANGE, AWAY = (401, {"detail": "no such token"}), (503, {"detail": "the store is away"})


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([STRANGE, (200, {})], None),
        ([STRANGE, STRANGE], Forbidden),
        ([AWAY, STRANGE], Unavailable),
        ([STRANGE, AWAY], Unavailable),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_token_that_one_daemon_does_not_know_is_shown_to_the_others(
    answers: list[tuple[int, Any]], error: type[JqdClientError] | None, method: str
) -> None:
    """It was derived from another while the store was away: a login of the web UI then."""
    wire = Wire(*(packed(*answer) for answer in answers))
    http = wire.http("secret", TWO)
    if error is None:
        assert http.call(method, "/v1/me", repeatable=False).body == {}
        assert http.url == "http://two.test:2", "which is asked first from now on"
    else:
        with pytest.raises(error):
            http.call(method, "/v1/me")
    assert [request.url.host for request in wire.requests] == ["one.test", "two.test"]


def test_who_has_no_token_is_told_so_by_the_first_daemon() -> None:
    """Where the other one hangs, the web UI would show that instead of the login."""
    wire = Wire(packed(*STRANGE), httpx2.ReadTimeout("slow"))
    with pytest.raises(Forbidden):
        wire.http(urls=TWO).call("GET", "/v1/me")
    assert len(wire.requests) == 1
