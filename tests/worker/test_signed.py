"""A worker with secrets runs and stops nothing that no daemon of its own signed."""

import base64
import hmac

import pytest
import trio

from jqd import App
from jqd.domain.errors import ConfigError
from jqd.domain.job import Held, Job
from jqd.domain.signature import signature
from jqd.runner.cancel import AGAIN_S
from jqd.runner.protocols import STYLES
from jqd.runner.protocols.protocol import Sending
from jqd.runner.worker import Worker
from jqd.testing.clock import ManualClock
from jqd.worker.serve import serve
from jqd.worker.service import Service
from jqd.worker.signed import SignedRequests, is_ours
from tests.harness.heads import headers_of
from tests.worker.exchange import Exchange, gated, jobs, packed

SECRET, OTHER = "whsec_" + "c2VjcmV0" * 5, "whsec_" + "b3RoZXIh" * 5
BODY = packed(*jobs("echo", 1))
app = App()
ran: list[object] = []


@app.job()
def echo(argument: object, /) -> None:
    ran.append(argument)


def signed(secret: str, message: str, body: bytes, at_s: int) -> dict[str, str]:
    return {"content-type": "application/msgpack", **dict(signature([secret], message, at_s, body))}


async def asked(headers: dict[str, str], *, method: str = "POST", body: bytes = BODY, query: str = "") -> Exchange:
    clock = ManualClock()
    service = Service(app.jobs, clock=clock, secrets=[SECRET, OTHER])
    try:
        return await Exchange(service, body, headers, method, query).run()
    finally:
        service.close()


def spellings(at_s: int) -> list[str]:
    """Other texts of that number, as `int` reads them."""
    text = str(at_s)
    return [f"0{text}", f"+{text}", f"{text[:1]}_{text[1:]}", f" {text}", f"{text}\t", chr(0xFF11) + text[1:]]


NATIVE = STYLES["native"]
NOW_S = ManualClock().wall_ms() // 1000
FOREIGN = {
    "no signature": {"content-type": "application/msgpack"},
    "another secret": signed("whsec_" + "bm9ib2R5" * 5, "b1", BODY, NOW_S),
    "another body": signed(SECRET, "b1", BODY + b"\xc0", NOW_S),
    "kept for long": signed(SECRET, "b1", BODY, NOW_S - 301),
    "from the future": signed(SECRET, "b1", BODY, NOW_S + 301),
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
async def test_what_no_daemon_signed_runs_nothing_and_costs_no_job(headers: dict[str, str]) -> None:
    ran.clear()
    exchange = await asked(headers)
    assert exchange.status == 503, "a 4xx would fail the jobs of a daemon whose secret or clock is wrong"
    assert int(exchange.headers["retry-after"]) > 0
    assert exchange.body["title"] == "Not signed"
    assert ran == []


@pytest.mark.parametrize("secret", [SECRET, OTHER])
async def test_either_secret_is_taken_while_one_is_exchanged(secret: str) -> None:
    ran.clear()
    assert (await asked(signed(secret, "b1", BODY, NOW_S))).status == 200
    assert ran == [0]


@pytest.mark.parametrize(
    ("message", "query", "status"),
    [
        ("j1-cancel", "job_id=j1", 404),  # signed: it is looked for, and is not there
        ("j1-cancel", "job_id=j2", 503),
        ("j1-cancel", "job_id=j1&job_id=j2", 503),
        ("j1", "job_id=j1", 503),
        (None, "job_id=j1", 503),
    ],
)
async def test_a_signed_cancel_stops_the_job_that_it_names_and_no_other(
    message: str | None, query: str, status: int
) -> None:
    headers = signed(SECRET, message, b"", NOW_S) if message else {}
    assert (await asked(headers, method="DELETE", body=b"", query=query)).status == status


async def test_what_somebody_kept_and_sends_again_runs_nothing() -> None:
    clock = ManualClock()
    service = Service(app.jobs, clock=clock, secrets=[SECRET])
    kept = signed(SECRET, "b1", BODY, NOW_S)
    ran.clear()
    try:
        assert (await Exchange(service, BODY, kept).run()).status == 200
        clock.advance(299)
        again = await Exchange(service, BODY, kept).run()
        assert again.status == 503, "a 4xx could fail somebody's jobs"
        assert "came before" in again.body["detail"]
        for text in spellings(NOW_S):
            assert (await Exchange(service, BODY, kept | {"webhook-timestamp": text}).run()).status == 503, text
        assert ran == [0]
        anew = signed(SECRET, "b1", BODY, NOW_S + 299)  # a daemon says the same again: it signs it anew
        assert (await Exchange(service, BODY, anew).run()).status == 200
        assert ran == [0, 0]
    finally:
        service.close()


async def test_a_cancel_that_stopped_a_job_stops_no_later_one() -> None:
    gates, gate = gated()
    service = Service(gates.jobs, clock=ManualClock(), secrets=[SECRET])
    body, cancel = packed(*jobs("echo", 1), *jobs("gate", 1)), signed(SECRET, "gate-0-cancel", b"", NOW_S)
    try:
        for number, status in enumerate((204, 503)):
            batch = Exchange(service, body, signed(SECRET, f"b{number}", body, NOW_S))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(batch.run)
                await gate.wait_begun()
                stop = await Exchange(service, b"", cancel, "DELETE", "job_id=gate-0").run()
                assert stop.status == status
                gate.go.set()
            gate.go.clear()
    finally:
        service.close()


def test_a_timestamp_is_plain_digits_also_where_another_spelling_of_it_is_signed() -> None:
    door = SignedRequests([SECRET])
    assert is_ours(door.keys, signed(SECRET, "b1", BODY, NOW_S), BODY, NOW_S)
    for text in spellings(NOW_S)[1:]:
        code = hmac.digest(door.keys[0], f"b1.{text}.".encode() + BODY, "sha256")
        headers = signed(SECRET, "b1", BODY, NOW_S) | {"webhook-timestamp": text}
        headers["webhook-signature"] = f"v1,{base64.b64encode(code).decode()}"
        assert not is_ours(door.keys, headers, BODY, NOW_S), text


async def test_a_cancel_that_found_no_job_stops_none_that_comes_after_it() -> None:
    gates, gate = gated()
    service = Service(gates.jobs, clock=ManualClock(), secrets=[SECRET])
    cancel = signed(SECRET, "gate-0-cancel", b"", NOW_S)

    async def status(at: str) -> int:
        told = cancel | {"webhook-timestamp": at}
        return (await Exchange(service, b"", told, "DELETE", "job_id=gate-0").run()).status

    try:
        assert await status(str(NOW_S)) == 404
        body = packed(*jobs("gate", 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Exchange(service, body, signed(SECRET, "b1", body, NOW_S)).run)
            await gate.wait_begun()
            assert [await status(text) for text in (str(NOW_S), *spellings(NOW_S))] == [503] * 7
            cancel = signed(SECRET, "gate-0-cancel", b"", NOW_S + 1)
            assert await status(str(NOW_S + 1)) == 204
            gate.go.set()
    finally:
        service.close()


def test_a_daemon_that_says_a_cancel_again_signs_it_anew() -> None:
    assert all(pause_s >= 1 for pause_s in AGAIN_S), "within one second it would be taken for one that somebody kept"


def test_as_many_requests_are_remembered_as_fit() -> None:
    door, most = SignedRequests([SECRET]), 50_000

    def is_new(number: int) -> bool:
        return door.why_not(dict(signature([SECRET], f"b{number}", NOW_S, b"")), b"", NOW_S) is None

    for number in range(most + 1):
        door.take({"webhook-id": f"b{number}", "webhook-timestamp": str(NOW_S)}, 1.0)
    assert [is_new(number) for number in (0, 1, most)] == [True, False, False]
    door.take({"webhook-id": "later", "webhook-timestamp": str(NOW_S)}, 602.0)  # none of the others is fresh any more
    assert [is_new(number) for number in (1, most)] == [True, True]


async def test_what_a_daemon_sends_is_taken_as_it_is_sent() -> None:
    """Its own requests, as its style makes and signs them."""
    worker = Worker(id="w", name="W", url="http://worker/", max_jobs=1, secrets=(SECRET,), registered_at_ms=0)
    sending = Sending(worker, "echo", [Held(Job("j.1", "echo", b"\x07"), 1, 1)], "b.1", "D", 0)
    ran.clear()
    for request, status in ((NATIVE.request(sending), 200), (NATIVE.cancel(sending, "j1"), 404)):
        assert request is not None
        signed = request.signed(worker, NOW_S * 1000)
        headers = {name.lower(): value for name, value in headers_of(signed).items()}
        query = signed.url.partition("?")[2]
        assert (await asked(headers, method=signed.method, body=signed.body, query=query)).status == status
    assert ran == [7]


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"])
async def test_it_is_not_served_to_the_network_without_a_secret(bind: str) -> None:
    with pytest.raises(ConfigError, match="--secret-file FILE"):
        await serve(app, bind=bind, advertise="http://worker:9", daemons=[], signals=False)


async def test_what_is_no_secret_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="a secret is whsec_ and 24 to 64 bytes in base64") as caught:
        await serve(app, secrets=["hunter2"], daemons=[], signals=False)
    assert "hunter2" not in str(caught.value)
