"""`app.testing` behaves as a daemon and a worker do: one program, whose findings are the same with each of them.

And the daemon that `jqd_daemon` starts is the real one here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jqd import Cancel, JobFailed, JobInfo, JqdClientError, NoResult, Ref, TimedOut
from jqd.testing.server import Server, open_server
from tests.directories import short_directory
from tests.live.harness import ROOT
from tests.live.wares import add, app, busy, early, flaky, hopeless, nap, odd, parent, quiet, rest, talk

WAIT_S = 30.0  # for a real job on a busy machine

See = Callable[[Ref[Any]], JobInfo]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with short_directory() as path, open_server(path) as server, server.worker("tests.live.wares:app", cwd=ROOT):
        yield server


def told(info: JobInfo) -> tuple[Any, ...]:
    """What both must say of a job that has ended; the last line of a traceback says enough."""
    history = [(each["attempt"], each["status"], each["reason"], each["error"]) for each in info.history]
    last = (info.message or "").strip().rpartition("\n")[2].replace(info.job_id, "ID")
    return info.name, info.state, info.attempts, info.result, info.error, info.log, last, history


def wrong(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(JqdClientError) as raised:
        call()
    return type(raised.value).__name__, str(raised.value)


def endings(see: See) -> Iterator[Any]:
    """How jobs end."""
    pushed: list[Ref[Any]] = [
        add.push(2, b=3),
        flaky.push(1),
        flaky.push(9),
        busy.push(),
        hopeless.push(),
        odd.push(),
        nap.push(0.01),
        rest.push(0.01),
        rest.options(timeout="100ms").push(60),
        quiet.push(),
        parent.push(5),
        early.push(),
        talk.push(40),
    ]
    for ref in pushed:
        info = see(ref)
        yield told(info)
        if ref.name == "flaky":
            first, second = info.history[0], info.started_at
            assert second is not None
            yield info.backoff, first["attempt"]
    yield pushed[0].result(), pushed[1].result()
    yield told(see(add.ref("child-5")))
    (follower,) = app.client.jobs(tag="follows-40")
    yield told(see(add.ref(follower.job_id))), pushed[-1].status().log
    for ref in (pushed[2], pushed[4], pushed[9]):
        with pytest.raises((JobFailed, NoResult)) as raised:
            ref.result()
        yield type(raised.value), str(raised.value).replace(ref.job_id, "ID")


def names(see: See) -> Iterator[Any]:
    """Own ids, batches, tags."""
    order = add.options(id="order-1", tags=["red", "blue"])
    yield [order.push(1).duplicate, order.push(1).duplicate], see(order.push(1)).result
    yield wrong(lambda: order.push(2))
    yield see(add.options(id="order-1", replace=True).push(7)).result
    with app.batch() as batch:
        add.options(id="order-2", tags=["red"]).push(4)
        add.options(id="order-1", replace=True).push(7)
        add.push(9)
    yield [(see(ref).result, ref.duplicate) for ref in batch.refs]
    yield wrong(atomic)
    yield sorted((job.job_id, job.state) for job in app.client.jobs(tag="red"))


def atomic() -> None:
    with app.batch(atomic=True):
        add.options(id="order-3").push(1)
        add.options(id="order-2").push(5)


def changes(see: See) -> Iterator[Any]:
    """Dates, cancels, and jobs that are tried anew."""
    late = add.options(id="late", delay="1h").push(1)
    with pytest.raises(TimedOut):
        late.result(wait="50ms")
    client = app.client
    yield late.status().state, client.change("late", priority=-3, argument={"a": 40, "b": 2}).priority
    client.run_now("late")
    yield see(late).result
    gone = add.options(id="gone", delay="1h").push(1)
    yield [gone.cancel(), gone.status().state, gone.cancel() is Cancel.TOO_LATE, client.retry("gone").state != "failed"]
    yield see(gone).result
    client.delete("gone")
    yield wrong(lambda: client.get("gone"))
    yield wrong(lambda: client.push("add", {}, timeout=0))
    yield told(see(add.ref(client.push("add", {"a": "x"}))))
    yield told(see(add.ref(client.push("add", {"c": 1}))))


def program(see: See) -> list[Any]:
    """All that is found, in order."""
    return [*endings(see), *names(see), *changes(see)]


@contextmanager
def pushing_to(server: Server) -> Iterator[None]:
    with server.client() as client, app.pushing_by(client):
        yield


@pytest.fixture(scope="module")
def found(server: Server) -> list[Any]:
    """What the program finds with a real daemon and a real worker."""
    with pushing_to(server):
        return program(lambda ref: ref.status(wait=WAIT_S))


def test_the_program_meets_what_it_is_about(found: list[Any]) -> None:
    """Else two worlds without anything would be alike."""
    told = str(found)
    for word in (
        "succeeded",
        "failed",
        "cancelled",
        "Conflict",
        "Invalid",
        "NotFound",
        "NoResult",
        "timeout",
        "busy",
        "looked",
    ):
        assert word in told, word
    assert len(found) > 30


def test_what_runs_inline_is_what_a_worker_does(found: list[Any]) -> None:
    with app.testing("inline"):
        assert program(lambda ref: ref.status(wait=WAIT_S)) == found


def test_what_runs_when_it_is_told_to_is_what_a_worker_does(found: list[Any]) -> None:
    with app.testing("fake") as t:

        def see(ref: Ref[Any]) -> JobInfo:
            t.advance("1s")
            return ref.status()

        assert program(see) == found
