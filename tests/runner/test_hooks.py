"""What a registration may say of the requests to its worker, and how they look then."""

import base64
import json
from typing import Any

import msgspec
import pytest

from jqd.cli.records import Record
from jqd.domain import fields
from jqd.domain.errors import Invalid
from jqd.domain.job import Held, Job
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from jqd.domain.signature import signature
from jqd.runner.endpoint import fill
from jqd.runner.handler import Handler, StoredOptions, Version
from jqd.runner.protocols import STYLES
from jqd.runner.protocols.protocol import Request, Sending
from jqd.runner.worker import StyleName, Worker, WorkerSpec
from tests.harness.heads import headers_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret, of 31 bytes....").decode()
HOOK = {"name": "w", "max_jobs": 1, "url": "http://h/mail/{name}/{job_id}.json", "style": "webhook"}


def read_card(**said: Any) -> WorkerSpec:
    """As the API does: what came over the wire, as a card."""
    return fields.read(msgspec.msgpack.encode({**HOOK, **said}), WorkerSpec)


def sent(jobtype: str = "mail", argument: bytes = b"\x07", *, generation: int = 0, **said: Any) -> Request:
    """What goes out for one job."""
    worker = Worker(**{**msgspec.structs.asdict(read_card(**said)), "id": "W", "registered_at_ms": 0})
    held = [Held(Job("J/1", jobtype, argument), 3, 2, generation)]
    request = STYLES[worker.style].request(Sending(worker, jobtype, held, "d.1-2", "D", 1_614_265_330_999))
    return request.signed(worker, 1_614_265_330_999)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mail", "/mail/"),
        ("a/b?c#d e", "/a%2Fb%3Fc%23d%20e/"),
        ("é{job_id}", "/%C3%A9%7Bjob_id%7D/"),
        ("..", "/%252E%252E/"),
        (".", "/%252E/"),
        ("..x", "/..x/"),
    ],
)
def test_what_is_filled_in_stays_one_part_of_the_path(name: str, path: str) -> None:
    assert fill("http://h/{name}/", name, "J") == f"http://h{path}"
    assert fill("http://h/{job_id}{name}", "n", "A/B") == "http://h/A%2FBn"


@pytest.mark.parametrize(
    ("said", "field", "why"),
    [
        ({"url": "http://{name}.h/"}, "url", "a host that cannot be"),
        ({"url": "http://h/{jobtype}"}, "url", "{name} and {job_id} are filled in"),
        ({"url": "http://h/{{name}}"}, "url", "has braces"),
        ({"style": "native"}, "url", "only style webhook"),
        ({"style": "soap"}, "style", "one of "),
        ({"format": "xml"}, "format", "one of "),
        ({"style": "lines", "url": "http://h/", "format": "json"}, "format", "none: it is text"),
        ({"style": "lightjq", "url": "http://h/", "format": "json"}, "format", "is msgpack"),
        ({"style": "native", "url": "http://h/", "method": "PUT"}, "method", "only style webhook"),
        ({"method": "TRACE"}, "method", "one of POST"),
        ({"batch": 2}, "batch", "one job in a request"),
        ({"url": None}, "style", "has no url"),
        ({"url": None, "style": "native", "secrets": [SECRET]}, "secrets", "has no url"),
        ({"headers": {"Content-Length": "3"}}, "headers", "the daemon's to set"),
        ({"headers": {"Transfer-Encoding": "x"}}, "headers", "the daemon's to set"),
        ({"headers": {"hOST": "x"}}, "headers", "the daemon's to set"),
        ({"headers": {"JQD-Job-Id": "x"}}, "headers", "the daemon's to set"),
        ({"headers": {"Webhook-Signature": "x"}}, "headers", "the daemon's to set"),
        ({"headers": {"Proxy-Authorization": "x"}}, "headers", "the daemon's to set"),
        ({"headers": {"x y": "x"}}, "headers", "no name of a header"),
        ({"headers": {"": "x"}}, "headers", "no name of a header"),
        ({"headers": {"x:": "x"}}, "headers", "no name of a header"),
        ({"headers": {"x": "hidden\r\ny: z"}}, "headers", "printable ASCII"),
        ({"headers": {"x": "hidden "}}, "headers", "printable ASCII"),
        ({"headers": {"x": ""}}, "headers", "printable ASCII"),
        ({"headers": {"x": "1", "X": "2"}}, "headers", "there twice"),
        ({"headers": {"x": "h" * 5_000}}, "headers", "at most 4096 bytes"),
        ({"headers": {f"x{n}": "h" for n in range(33)}}, "headers", "at most 32"),
        ({"headers": "hidden"}, "headers", "not what was given"),
        ({"secrets": "hidden"}, "secrets", "not what was given"),
        ({"secrets": ["hidden"]}, "secrets", "24 to 64 bytes in base64"),
        ({"secrets": [SECRET.removeprefix("whsec_")]}, "secrets", "a secret is whsec_"),
        ({"secrets": ["whsec_" + "a" * 200]}, "secrets", "24 to 64 bytes"),
        ({"secrets": [SECRET] * 5}, "secrets", "at most 4"),
    ],
    ids=str,
)
def test_what_cannot_be_registered(said: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_card(**said)
    assert caught.value.faults[0].pointer.split("/")[1] == field
    assert why in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_secrets_and_headers_stand_in_no_log() -> None:
    card = read_card(secrets=[SECRET], headers={"Authorization": "Bearer hidden"})
    assert repr(card) == "WorkerSpec('w', None, webhook, http://h/mail/{name}/{job_id}.json)"
    assert "hidden" not in f"{card} {[card]}"
    version = Version(
        lang="http",
        body="http://h/",
        options=StoredOptions(secrets=(SECRET,), headers={"Authorization": "Bearer hidden"}),
        number=1,
        set_at_ms=1,
    )
    handler = Handler(1, (version,))
    setting = Setting("handler", "mail", 7, 1, msgspec.Raw(msgspec.msgpack.encode(handler)))
    shown = f"{handler} {setting} {Record(0, Lane.RULES, 1, setting).as_json()}"
    assert "hidden" not in shown
    assert SECRET not in shown
    assert '"headers":"(not shown)"' in shown


def test_a_hook_is_asked_as_it_registered() -> None:
    request = sent("a/b", method="PUT", headers={"Authorization": "Bearer x", "accept": "text/html"})
    assert request[:2] == ("PUT", "http://h/mail/a%2Fb/J%2F1.json")
    headers = headers_of(request)
    assert (headers["Authorization"], headers["accept"], "Accept" in headers) == ("Bearer x", "text/html", False)
    assert request.body == b"7"
    packed = sent(argument=b"\xc4\x01x", format="msgpack")
    assert (headers_of(packed)["Content-Type"], packed.body) == ("application/msgpack", b"\xc4\x01x")
    for method in ("GET", "DELETE"):
        asked = sent(method=method)
        assert (asked.method, asked.body, "Content-Type" in headers_of(asked)) == (method, b"", False)


def test_a_batch_may_be_json() -> None:
    request = sent(argument=b"\x81\xa1a\xc4\x01\xff", style="native", url="http://h/", format="json")
    assert headers_of(request)["Content-Type"] == "application/json"
    (job,) = json.loads(request.body)["jobs"]
    assert (job["job_id"], job["argument"]) == ("J/1", {"a": {"$bytes": "/w=="}})


def test_all_attempts_of_a_job_are_one_trace() -> None:
    def trace(style: StyleName, fence: int) -> list[str]:
        worker = Worker(name="w", id="W", url="http://h/", max_jobs=1, registered_at_ms=0, style=style)
        told = Sending(worker, "m", [Held(Job("J", "m"), fence, 1)], f"b{fence}", "D", 0)
        return headers_of(STYLES[style].request(told))["traceparent"].split("-")

    first, second = trace("webhook", 7), trace("native", 8)
    assert first[:2] == second[:2]
    assert (first[2:], second[2:]) == (["0000000000000007", "01"], ["0000000000000008", "01"])


def test_a_job_goes_on_with_the_trace_of_its_push() -> None:
    pushed = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    held = Held(Job("J", "m", traceparent=pushed), 7, 1)
    for style in ("webhook", "native"):
        worker = Worker(name="w", id="W", url="http://h/", max_jobs=1, registered_at_ms=0, style=style)
        request = STYLES[style].request(Sending(worker, "m", [held], "b", "D", 0))
        assert headers_of(request)["traceparent"] == pushed
        assert style == "webhook" or pushed.encode() in request.body
    several = Sending(worker, "m", [held, Held(Job("K", "m"), 8, 1)], "b", "D", 0)
    assert headers_of(STYLES["native"].request(several))["traceparent"] != pushed, "it is of one of them only"


def test_signatures_are_those_of_standard_webhooks() -> None:
    """The specification's own example."""
    signed = signature([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert dict(signed) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_secret_signs_what_goes_out() -> None:
    request = sent(secrets=[SECRET, OTHER])
    told = {name: value for name, value in headers_of(request).items() if name.startswith("webhook-")}
    assert told == dict(signature([SECRET, OTHER], "J/1", 1_614_265_330, request.body))
    alone = [
        dict(signature([each], "J/1", 1_614_265_330, request.body))["webhook-signature"] for each in (SECRET, OTHER)
    ]
    assert told["webhook-signature"].split(" ") == alone
    assert "webhook-id" not in headers_of(sent())


def test_a_message_keeps_its_id_until_it_says_something_else() -> None:
    def ids(**said: Any) -> str:
        return headers_of(sent(secrets=[SECRET], **said))["webhook-id"]

    assert (ids(), ids(generation=9)) == ("J/1", "J/1-9")
    assert ids(style="native", url="http://h/") == "d_1-2", "a dot would part it"
