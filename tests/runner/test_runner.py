"""Jobs on real HTTP workers over loopback: the ordinary ways."""

import json
from typing import Any

import msgpack
import pytest
import trio
import trio.testing

from jqd.domain.job import NIL, Fate, Wanted
from jqd.runner import Report
from jqd.runner.outcome import INVALID_JOBS
from jqd.testing.clock import ManualClock
from tests.harness.worker import Reply, Request, answer, in_turn, open_worker
from tests.runner.conftest import Eventually, OpenHouse, claims, hold, ids


async def test_a_batch_carries_all_that_a_worker_needs(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        card = house.register(worker.url)
        held = hold(3, argument={"n": [1, b"\xff", None]}, keep_result=True, timeout=20.0, max_retry=4, attempt=2)
        outcomes = await house.run_to_end(held)
        request = worker.requests[0]
        assert request.headers["content-type"] == "application/msgpack"
        assert request.headers["jqd-job-type"] == "mail"
        assert request.headers["jqd-daemon"] == "DAEMON"
        assert request.headers["accept-encoding"] == "identity"
        body = request.content()
        assert body["batch_id"] == request.headers["jqd-batch-id"]
        job = body["jobs"][0]
        assert job.pop("deadline") > job["created_at"]
        assert len({each.pop("trace") for each in body["jobs"]}) == 3
        assert job == {
            "job_id": held[0].job.id,
            "id": held[0].job.id,
            "name": "mail",
            "argument": {"n": [1, b"\xff", None]},
            "attempt": 2,
            "max_retry": 4,
            "timeout": 20.0,
            "keep_result": True,
            "created_at": "2023-11-14T22:13:20.000Z",
        }
        outcome = outcomes[2]
        assert (outcome.fate, outcome.status, outcome.fence, outcome.attempt) == (Fate.SUCCEEDED, 200, 7, 2)
        assert outcome.worker == card.id
        assert outcome.result == msgpack.packb({"n": [1, b"\xff", None]})
        assert 0 < outcome.started_at_ms <= outcome.finished_at_ms


async def test_a_result_is_dropped_unless_the_job_asked_for_it(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_to_end(hold(argument="x"))
        assert (outcome.result, outcome.keep_result) == (NIL, False)


async def test_outcomes_stop_the_moment_they_arrive(open_house: OpenHouse) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        first, second = request.job_ids()
        await reply.begin()
        await reply.outcome(job_id=second, type="success")
        await go_on.wait()
        await reply.outcome(job_id=first, status=422, message="no such address")
        await reply.finish()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, max_jobs=2)
        held = hold(2)
        house.run(held)
        await house.stopped(1)
        assert list(house.outcomes) == [held[1].job.id]
        offer = house.runner.offer("mail", 0)
        assert offer is not None
        assert offer.jobs_max == 1, "the neighbour's slot is free already"
        assert house.runner.running(held[0].job.id) is not None
        assert house.runner.running(held[1].job.id) is None
        go_on.set()
        await house.stopped(2)
        last = house.outcomes[held[0].job.id]
        assert (last.fate, last.status, last.message) == (Fate.FAILED, 422, "no such address")


async def test_a_job_is_in_hand_until_it_is_settled(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold(2)
        house.run(held)
        assert house.runner.get_running_jobs() == dict.fromkeys(ids(held), 7)
        house.runner.forget(claims(held))
        assert len(house.runner.get_running_jobs()) == 2, "what has not stopped stays in flight"
        await house.stopped(2)
        assert len(house.runner.get_running_jobs()) == 2
        house.runner.forget(claims(held))
        assert house.runner.get_running_jobs() == {}
        assert not any(house.runner.get_stopped_jobs(10))


async def test_an_answer_without_body_means_all_succeeded(open_house: OpenHouse) -> None:
    async with open_worker(in_turn(answer(200), answer(204))) as worker, open_house() as house:
        house.register(worker.url)
        outcomes = await house.run_to_end(hold(3)) + await house.run_to_end(hold(1))
        assert {outcome.fate for outcome in outcomes} == {Fate.SUCCEEDED}


async def test_a_job_the_answer_does_not_name_is_tried_again(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.outcomes({"job_id": request.job_ids()[0], "type": "success"}, {"job_id": "OTHER", "status": 400})

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        first, second = await house.run_to_end(hold(2))
        assert first.fate is Fate.SUCCEEDED
        assert (second.fate, second.status) == (Fate.RETRY, 500)
        assert second.message.startswith("NO_RESPONSE")
        assert second.delay_ms == 1000
        assert house.runner.stats()["unknown_ids"] == 1


@pytest.mark.parametrize("named", [{"job_id": ""}, {"id": ""}, {"job_id": "", "status": "what"}], ids=str)
async def test_an_empty_id_is_a_wrong_id(open_house: OpenHouse, named: dict[str, str]) -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.outcomes({"type": "success", **named})

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_to_end(hold(1))
        assert outcome.fate is Fate.RETRY
        assert outcome.message.startswith("NO_RESPONSE")
        assert house.runner.stats()["unknown_ids"] == 1


async def test_of_two_verdicts_the_first_wins(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        first, second = request.job_ids()
        await reply.outcomes(
            {"job_id": first, "status": 400}, {"job_id": first, "status": 200}, {"job_id": second, "type": "success"}
        )

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        first, _ = await house.run_to_end(hold(2))
        assert first.fate is Fate.FAILED
        assert house.runner.stats()["repeated_ids"] == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('[{{"job_id": "{0}", "type": "success", "result": {{"a": [1, "é"]}}}}]', "application/json"),
        ('{{"id": "{0}", "status": 201, "result": {{"a": [1, "é"]}}}}', "application/json; charset=utf-8"),
        ('\n{{"job_id": "{0}", "status": 200, "result": {{"a": [1, "é"]}}}}\n', "application/x-ndjson"),
        ('{{"type": "success", "result": {{"a": [1, "é"]}}}}', "application/json"),
    ],
)
async def test_json_answers(open_house: OpenHouse, body: str, kind: str) -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.send(200, body.format(request.job_ids()[0]).encode(), kind=kind)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_to_end(hold(keep_result=True))
        assert outcome.fate is Fate.SUCCEEDED, outcome.message
        assert msgpack.unpackb(outcome.result) == {"a": [1, "é"]}


async def test_batch_item_failures(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        listed = {"batchItemFailures": [{"itemIdentifier": request.job_ids()[1]}]}
        await reply.send(200, msgpack.packb(listed))

    async def stranger(request: Request, reply: Reply) -> None:
        await reply.send(200, b'{"batchItemFailures": [{"itemIdentifier": "?"}]}', kind="application/json")

    async def none(request: Request, reply: Reply) -> None:
        await reply.send(200, b'{"batchItemFailures": null}', kind="application/json")

    async with open_worker(in_turn(script, stranger, none)) as worker, open_house() as house:
        house.register(worker.url)
        assert [o.fate for o in await house.run_to_end(hold(3))] == [Fate.SUCCEEDED, Fate.RETRY, Fate.SUCCEEDED]
        assert [o.fate for o in await house.run_to_end(hold(2))] == [Fate.RETRY] * 2
        assert [o.fate for o in await house.run_to_end(hold(2))] == [Fate.SUCCEEDED] * 2


async def test_what_a_worker_has_not_begun_goes_back_untried(open_house: OpenHouse) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        first, second, third = request.job_ids()
        await reply.begin()
        await reply.outcome(job_id=second, type="refused")
        await reply.outcome(job_id=third, type="started")
        await reply.outcome(job_id=third, type="refused", message="no room")
        await reply.outcome(job_id=third, type="refused")
        await go_on.wait()
        await reply.outcome(job_id=first, type="success")
        await reply.finish()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, max_jobs=3)
        held = hold(3)
        house.run(held)
        await house.stopped(2)
        assert house.returned == ids(held)[1:]
        assert house.unsent == [held[1].job.id], "the third was begun, whatever it says later: that one must not expire"
        assert house.runner.offer("mail", 0) is None, "what it still has is what it takes"
        go_on.set()
        await house.stopped(3)
        assert house.outcomes[held[0].job.id].fate is Fate.SUCCEEDED
        offer = house.runner.offer("mail", 0)
        assert offer is not None
        assert (offer.jobs_max, house.runner.stats()["returned"], house.runner.stats()["repeated_ids"]) == (1, 2, 1)


async def test_a_job_that_waited_at_the_worker_has_its_time_from_when_it_begins(
    open_house: OpenHouse, eventually: Eventually
) -> None:
    more = [trio.Event(), trio.Event()]
    clock = ManualClock()

    async def script(request: Request, reply: Reply) -> None:
        waiting, done = request.job_ids()
        await reply.begin()
        await reply.outcome(job_id=done, type="success")
        for event in more:
            await event.wait()
            await reply.outcome(job_id=waiting, type="started")
            await reply.outcome(job_id=done, type="success")  # repeated: shows that what stands before it was heard
        await trio.sleep_forever()

    async with open_worker(script) as worker, open_house(clock=clock) as house:
        house.register(worker.url)
        held = hold(2, timeout=10.0)
        house.run(held)
        await house.stopped(1)
        for number, event in enumerate(more, 1):
            clock.advance(9)
            event.set()
            await eventually(lambda number=number: house.runner.stats()["repeated_ids"] == number)  # type: ignore[misc]
        clock.advance(2)
        await house.stopped(2)
        outcome = house.outcomes[held[0].job.id]
        assert outcome.reason == "timeout", "it begins once: eleven seconds ago"
        assert outcome.finished_at_ms - outcome.started_at_ms == 20_000


async def test_lightjq_workers_get_one_job_a_request(open_house: OpenHouse) -> None:
    async with open_worker(answer(202)) as worker, open_house() as house:
        card = house.register(worker.url + "/", style="lightjq", max_jobs=2)
        held = hold(2, argument={"to": "x"}, timeout=7.2)
        house.run(held)
        one, two = await worker.request(0), await worker.request(1)
        assert one.target == "/run/worker-job"
        assert sorted([one.content()["id"], two.content()["id"]]) == sorted(ids(held))
        assert one.content() == {
            "id": one.content()["job_id"],
            "job_id": one.content()["id"],
            "name": "mail",
            "argument": {"to": "x"},
            "timeout": 8,
        }
        await house.stopped(2)
        assert {(one.fate, one.worker) for one in house.outcomes.values()} == {(Fate.ENTRUSTED, card.id)}


async def test_a_lightjq_worker_that_does_not_know_a_jobtype_is_not_asked_again(open_house: OpenHouse) -> None:
    async with open_worker(in_turn(answer(404), answer(400), answer(202))) as worker, open_house() as house:
        house.register(worker.url, style="lightjq")
        house.run(hold(1))
        await house.stopped(1)
        assert len(house.returned) == 1
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == [Wanted(besides=frozenset({"mail"}))], "it may take others"
        (outcome,) = await house.run_to_end(hold(1, jobtype="bill"))
        assert (outcome.fate, outcome.status) == (Fate.FAILED, 400)


@pytest.mark.parametrize("language", ["json", "msgpack"])
@pytest.mark.parametrize("scopes", [(), ("mail", "ne*"), ("mail",)])
async def test_jobs_that_follow_are_part_of_the_outcome_and_of_what_its_workers_token_is_for(
    open_house: OpenHouse, language: Any, scopes: tuple[str, ...]
) -> None:
    async def script(request: Request, reply: Reply) -> None:
        told = json.loads(request.body) if language == "json" else request.content()
        first, second = (job["job_id"] for job in told["jobs"])
        outcomes: list[Any] = [
            {"job_id": first, "type": "success", "jobs": [{"name": "next", "argument": [1.5, "a"]}]},
            {"job_id": second, "type": "success", "jobs": []},
        ]
        if language == "json":
            await reply.send(200, json.dumps(outcomes).encode(), kind="application/json")
        else:
            await reply.outcomes(*outcomes)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, format=language, scopes=scopes)
        first, second = await house.run_to_end(hold(2))
        if scopes == ("mail",):
            assert (first.fate, second.fate, first.follows) == (Fate.FAILED, Fate.SUCCEEDED, b"")
            assert first.message.startswith(f"{INVALID_JOBS}: ")
            assert first.message.endswith("jobs/0/name: the worker's token is not for jobs 'next'")
            return
        assert (first.fate, second.fate, second.follows) == (Fate.SUCCEEDED, Fate.SUCCEEDED, b"")
        tenant, (told,) = msgpack.unpackb(first.follows)
        its = {"name": "next", "argument": [1.5, "a"], "job_id": f"{first.job_id}.0", "parent": first.job_id}
        assert (tenant, told) == ("", its)


async def test_connections_are_kept(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        for _ in range(5):
            await house.run_to_end(hold(2))
        assert worker.connections == 1


async def test_jobs_given_before_it_runs_are_run(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        carriers, nursery = house.runner._carriers, house.runner._carriers.nursery
        assert nursery is not None
        carriers.close()
        held = hold(1)
        house.run(held)
        (delivery,) = carriers._early
        done = house.runner.done(held[0].job.id, Report(), worker_id=delivery.worker.id)
        assert done is False, "nobody can have done what was not sent"
        assert house.runner.running(held[0].job.id) is None
        carriers.open(nursery)
        await house.stopped(1)


async def test_outcomes_nobody_takes_stop_new_work(open_house: OpenHouse, eventually: Eventually) -> None:
    async with open_worker() as worker, open_house(untaken_bytes_max=1000) as house:
        house.register(worker.url)
        house.run(hold(1, argument="x" * 600, keep_result=True))
        house.run(hold(1, argument="x" * 600, keep_result=True))
        await eventually(lambda: house.runner.stats()["untaken"] == 2)
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.wait_free)
            await trio.testing.wait_all_tasks_blocked()
            await house.stopped(2)
        assert house.runner.wanted() == [Wanted()]
