"""Cancelled jobs in flight: those not sent go back untried, of the others the worker is told, and no more than told."""

import socket
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import trio
import trio.testing

from jqd.domain.job import Fate
from jqd.runner import Report
from jqd.runner.cancel import ASKED_MAX
from jqd.runner.in_flight import InFlightJob
from jqd.runner.transport import network
from tests.harness.worker import Reply, Request, answer, in_turn, open_worker, succeed
from tests.runner.conftest import WAIT_S, Eventually, House, OpenHouse, claims, hold, ids


class Stage:
    """A worker that holds its jobs until it is told what becomes of them."""

    def __init__(self) -> None:
        self.told: dict[str, trio.Event] = {}

    async def script(self, request: Request, reply: Reply) -> None:
        """Ends each job as cancelled once it is told so."""
        await reply.begin()
        for job_id in request.job_ids():
            await self.told.setdefault(job_id, trio.Event()).wait()
            await reply.outcome(job_id=job_id, type="failure", status=499, should_retry=False, message="cancelled")
        await reply.finish()

    async def on_cancel(self, request: Request, reply: Reply) -> None:
        path, _, job_id = request.target.partition("?job_id=")
        assert path == "/run"
        self.told.setdefault(job_id, trio.Event()).set()
        await reply.send(204)


@pytest.fixture(name="no_pauses")
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.runner.cancel.AGAIN_S", (0.0, 0.0))


def counter(house: House, name: str) -> object:
    return house.runner.stats()[name]


async def test_a_worker_is_told_and_its_word_counts(open_house: OpenHouse) -> None:
    stage = Stage()
    async with open_worker(stage.script) as worker, open_house() as house:
        worker.on_cancel = stage.on_cancel
        house.register(worker.url)
        held = hold(2)
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        await house.stopped(2)
        assert {(o.fate, o.status, o.message) for o in house.outcomes.values()} == {(Fate.FAILED, 499, "cancelled")}
        assert counter(house, "cancels_sent") == 2
        request = worker.cancels[0]
        assert (request.headers["jqd-daemon"], request.body) == ("DAEMON", b"")
        batch = worker.requests[0].headers["jqd-batch-id"]
        assert [told.headers["jqd-batch-id"] for told in worker.cancels] == [batch, batch], "the one the jobs came in"


async def test_what_is_of_another_jobtype_goes_back_and_its_neighbours_go_out(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = [*hold(2), *hold(jobtype="other")]
        house.run(held)
        await house.stopped(3)
        assert (house.returned, sorted(house.outcomes)) == ([held[2].job.id], ids(held[:2]))
        assert [request.job_ids() for request in worker.requests] == [ids(held[:2])]


async def test_what_was_not_sent_goes_back_and_its_neighbours_go_out(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold(3)
        house.run(held)  # nothing is sent before this task waits
        house.runner.cancel(claims(held[1:2]))
        await house.stopped(3)
        assert house.returned == [held[1].job.id]
        assert sorted(house.outcomes) == sorted([held[0].job.id, held[2].job.id])
        assert [request.job_ids() for request in worker.requests] == [[held[0].job.id, held[2].job.id]]
        assert worker.cancels == []


async def test_a_probe_that_is_withdrawn_before_its_first_step_is_not_waited_for(
    open_house: OpenHouse, eventually: Eventually
) -> None:
    async with open_worker(in_turn(answer(503), succeed)) as worker, open_house() as house:
        house.register(worker.url)
        house.run(hold(1))
        await house.stopped(1)
        await eventually(lambda: house.runner.offer("mail", 0) is not None)
        probe = hold(1)
        house.run(probe)  # nothing is sent before this task waits
        assert house.runner.offer("mail", 0) is None, "one probe at a time"
        house.runner.cancel(claims(probe))
        await house.stopped(2)
        assert house.runner.offer("mail", 0) is not None, "else this worker never got a job again"
        await house.run_to_end(hold(1))


@pytest.mark.parametrize("by", ["cancel", "success"])
@pytest.mark.parametrize("cancelled", [1, 2])
async def test_a_request_that_was_packed_does_not_take_a_cancelled_job_out(
    cancelled: int, by: str, open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its connection when one of its jobs is cancelled, or an earlier attempt of it succeeds after all."""
    connect = trio.Event()
    real = network.dial

    async def slowly(address: str, port: int) -> socket.socket:
        await connect.wait()
        return await real(address, port)

    monkeypatch.setattr(network, "dial", slowly)
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold(2)
        house.run(held)
        await trio.testing.wait_all_tasks_blocked()
        if by == "cancel":
            house.runner.cancel(claims(held[:cancelled]))
        else:
            house.runner.skip_succeeded([(each.job.id, each.fence - 1) for each in held[:cancelled]])
            house.runner.skip_succeeded([*claims(held[cancelled:]), ("NEVER HERE", 7)])
        connect.set()
        await house.stopped(2)
        assert house.returned == ids(held[:cancelled])
        assert [request.job_ids() for request in worker.requests] == [[i] for i in ids(held[cancelled:])]


async def test_a_claim_that_comes_after_its_cancel_is_not_sent(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold(2)
        house.runner.cancel([*claims(held[:1]), ("NEVER HERE", 7)])
        house.run(held)
        await house.stopped(2)
        assert (house.returned, list(house.outcomes)) == ([held[0].job.id], [held[1].job.id])
        again = hold(1)
        house.runner.cancel(claims(again))
        house.run(again)
        await house.stopped(3)
        house.runner.forget(claims(again))
        house.run(again)  # given out anew, by a retry for instance: it was told once
        await house.stopped(4)
        assert again[0].job.id in house.outcomes


async def test_a_cancel_of_what_has_just_stopped_is_not_remembered(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold()
        await house.run_to_end(held)
        house.runner.cancel(claims(held))
        house.runner.forget(claims(held))
        house.outcomes.clear()
        await house.run_to_end(held)
        assert worker.cancels == []


@pytest.mark.parametrize("at_work", [True, False])
async def test_a_cancel_of_an_earlier_claim_does_not_stop_the_next(at_work: bool, open_house: OpenHouse) -> None:
    """The renewal that told it was on its way while the job ended, got other content and was claimed again."""
    async with open_worker(answer(202)) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(fence=8)
        earlier = [(held[0].job.id, 7)]
        if not at_work:
            house.runner.cancel(earlier)
        house.run(held)
        await worker.request(0)
        house.runner.cancel(earlier)
        await trio.testing.wait_all_tasks_blocked()
        assert (worker.cancels, house.returned) == ([], [])


async def test_a_cancel_that_is_remembered_costs_no_other_job_anything(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim may never come, and would be remembered for the life of the process."""
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held, looked = hold(), list[Sequence[InFlightJob]]()
        keep_sound = house.runner._keep_sound

        def note(entries: Sequence[InFlightJob], jobtype: str) -> list[InFlightJob]:
            looked.append(entries)
            sound: list[InFlightJob] = keep_sound(entries, jobtype)
            return sound

        monkeypatch.setattr(house.runner, "_keep_sound", note)
        house.runner.cancel(claims(held))
        await house.run_to_end(hold(2))
        assert not looked
        house.run([*held, *hold()])
        await house.stopped(4)
        assert (house.returned, len(looked), house.runner._cancelled) == (ids(held), 1, {})


async def test_what_is_remembered_is_bounded(open_house: OpenHouse) -> None:
    async with open_house() as house:
        held = [hold()[0] for _ in range(ASKED_MAX + 1)]
        house.runner.cancel(claims(held))
        assert [*house.runner._cancelled] == ids(held[1:])
        house.runner.run_jobs("W", "mail", held[:3])
        assert [*house.runner._cancelled] == ids(held[3:]), "each is asked for once"
        await house.stopped(3)


async def test_a_worker_that_does_not_know_the_job_yet_is_told_again(open_house: OpenHouse, no_pauses: None) -> None:
    stage = Stage()
    async with open_worker(stage.script) as worker, open_house() as house:
        worker.on_cancel = in_turn(answer(404), answer(500), stage.on_cancel)
        house.register(worker.url)
        held = hold()
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        await house.stopped(1)
        assert len(worker.cancels) == 3
        assert house.outcomes[held[0].job.id].status == 499


@pytest.mark.parametrize("status", [405, 400, 204])
async def test_a_worker_that_takes_no_such_call_is_left_in_peace(
    status: int, open_house: OpenHouse, no_pauses: None
) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await succeed(request, reply)

    async with open_worker(script) as worker, open_house() as house:
        card = house.register(worker.url)
        worker.on_cancel = answer(status)
        held = hold()
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        await worker.cancel(0)
        go_on.set()
        await house.stopped(1)
        assert house.outcomes[held[0].job.id].fate is Fate.SUCCEEDED, "a success stays one"
        assert len(worker.cancels) == 1
        (row,) = house.runner.stats()["workers"]
        assert (row["id"], row["failures"]) == (card.id, 0)


async def test_a_worker_that_cannot_be_told_keeps_its_job(
    open_house: OpenHouse, eventually: Eventually, no_pauses: None
) -> None:
    """Its connection breaks, again and again; the job ends when it ends."""
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await succeed(request, reply)

    async def reset(request: Request, reply: Reply) -> None:
        await reply.reset()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        worker.on_cancel = reset
        held = hold()
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        with trio.fail_after(WAIT_S):
            await worker.cancel(2)
        go_on.set()
        await house.stopped(1)
        assert house.outcomes[held[0].job.id].fate is Fate.SUCCEEDED
        assert counter(house, "cancels_sent") == 0
        assert counter(house, "back_offs") == 0


async def test_a_silent_worker_is_not_waited_for(
    open_house: OpenHouse, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, no_pauses: None
) -> None:
    monkeypatch.setattr("jqd.runner.cancel.SEND_S", 0.3)
    stage = Stage()

    async def silent(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(stage.script) as worker, open_house() as house:
        worker.on_cancel = in_turn(silent, stage.on_cancel)
        house.register(worker.url)
        held = hold()
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        await house.stopped(1)
        assert (len(worker.cancels), house.outcomes[held[0].job.id].status) == (2, 499)


async def test_what_was_cancelled_goes_back_after_a_lost_connection(open_house: OpenHouse) -> None:
    go_on = trio.Event()

    async def lost(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await reply.reset()

    async with open_worker(in_turn(lost, succeed)) as worker, open_house() as house:
        worker.on_cancel = answer(204)
        house.register(worker.url)
        held = hold(2)
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held[:1]))
        await worker.cancel(0)
        go_on.set()
        await house.stopped(2)
        assert (sorted(house.returned), len(worker.requests)) == (ids(held), 1), "the store knows what was cancelled"


async def test_a_lightjq_worker_knows_no_such_call(open_house: OpenHouse) -> None:
    async def silent(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(silent) as worker, open_house() as house:
        card = house.register(worker.url, style="lightjq")
        held = hold()
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        await trio.testing.wait_all_tasks_blocked()
        assert house.runner.done(held[0].job.id, Report(result=msgpack.packb(1)), worker_id=card.id)
        await house.stopped(1)
        assert worker.cancels == []


async def test_a_worker_is_not_told_of_a_job_that_has_ended_meanwhile(open_house: OpenHouse) -> None:
    """It ended while others were told."""
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold()
        await house.run_to_end(held)
        nothing: Any = None  # neither its delivery nor the connections are touched
        delivery: Any = SimpleNamespace(worker=SimpleNamespace(id="w"))
        await house.runner._canceller.send_cancel(nothing, delivery, held[0].job.id)
        assert worker.cancels == []
