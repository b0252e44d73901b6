"""A worker reports a job before the store knows that it has it: its 202 is on its way, or its hand-over is."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from jqd.domain.job import Fate, Held, State
from jqd.runner import Running
from jqd.store import OnItsWay
from tests.api.edge import Answer
from tests.api.whole import Whole

SUCCESS = {"type": "success", "result": 7}
FAILURE = {"type": "failure", "reason": "other", "should_retry": True, "message": "no paper"}
SAID = {"success": (SUCCESS, State.SUCCEEDED), "failure": (FAILURE, State.RETRYING)}


async def sent(**pushed: Any) -> tuple[Whole, Held]:
    """A job in the hand of a daemon, which has sent it to w1. The one that is asked does not wait for it itself."""
    whole = await Whole().begin()
    whole.runner.knows = False
    await whole.push(**pushed)
    (held,) = await whole.claim()
    return whole, held


async def report(whole: Whole, held: Held, told: dict[str, Any], worker: str = "w1") -> Answer:
    return await whole.call("POST", "/done", {"job_id": held.job.id, **told}, headers={"worker-id": worker})


def at_look(whole: Whole, number: int, do: Callable[[], Awaitable[object]], looks: list[str] | None = None) -> None:
    """Have that happen before the store is looked at for the so manieth time (0: before the first). `looks`: noted."""
    looks = [] if looks is None else looks

    def before(name: str) -> None:
        its = getattr(whole.whole, name)

        async def looked(*args: Any, **options: Any) -> Any:
            looks.append(name)
            if len(looks) == number + 1:
                await do()
            return await its(*args, **options)

        setattr(whole.whole, name, looked)

    before("touch")
    before("get_job")


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("look", range(5))
async def test_a_report_counts_whenever_the_hand_over_comes(autojump_clock: None, look: int, said: str) -> None:
    """Each look is two calls, of who holds the job and of how it stands: the hand-over comes between any two."""
    whole, held = await sent()
    told, state = SAID[said]
    at_look(whole, look, lambda: whole.hand(held, "w1"))
    assert (await report(whole, held, told)).status == 204
    assert (await report(whole, held, told)).status == 204, "it may be said twice"
    view = (await whole.call("GET", f"/v1/jobs/{held.job.id}")).body
    assert view["state"] == state, "what was acknowledged is shown at once"
    assert len(view["history"]) == (said == "failure"), "and counted once"


@pytest.mark.parametrize("look", range(5))
async def test_a_second_attempt_that_fails_as_the_first_did_is_no_repeat(autojump_clock: None, look: int) -> None:
    whole, first = await sent()
    await whole.hand(first, "w1")
    assert (await report(whole, first, FAILURE)).status == 204
    await whole.call("POST", f"/v1/jobs/{first.job.id}/run-now", {})
    (second,) = await whole.claim()
    at_look(whole, look, lambda: whole.hand(second, "w1"))
    assert (await report(whole, second, FAILURE)).status == 204
    view = (await whole.call("GET", f"/v1/jobs/{first.job.id}")).body
    assert (view["state"], len(view["history"])) == ("retrying", 2)


@pytest.mark.parametrize("said", SAID)
async def test_a_hand_over_that_does_not_come_is_asked_for_again_and_never_denied(
    autojump_clock: None, said: str
) -> None:
    """Its daemon's disk hangs, say. A 404 would have the worker drop its report."""
    whole, held = await sent()
    answer = await report(whole, held, SAID[said][0])
    assert (answer.status, "retry-after" in answer.headers) == (503, True), answer.body
    await whole.hand(held, "w1")
    assert (await report(whole, held, SAID[said][0])).status == 204


async def test_who_did_not_get_the_job_is_told_so_by_the_daemon_that_knows(autojump_clock: None) -> None:
    whole, held = await sent()
    whole.control.names = ["d1"]
    whole.runner.at_work[held.job.id] = Running("w2", 1, "mail")
    assert (await report(whole, held, SUCCESS)).status == 404
    await whole.hand(held, "w2")
    assert (await report(whole, held, SUCCESS)).status == 404, "it is in another's hand"


async def test_a_void_claim_of_this_daemon_says_nothing_of_who_has_the_job_now(autojump_clock: None) -> None:
    whole, held = await sent()
    whole.runner.at_work[held.job.id] = Running("w2", 1, "mail")  # and d1 has it, says the store
    assert (await report(whole, held, SUCCESS)).status == 503


@pytest.mark.parametrize("said", ["no paper", "no ink"])
async def test_an_earlier_attempt_does_not_answer_for_one_on_its_way(autojump_clock: None, said: str) -> None:
    """Neither is what it repeats taken for said, nor another failure for late: its daemon's disk hangs, say."""
    whole, first = await sent()
    await whole.hand(first, "w1")
    assert (await report(whole, first, FAILURE)).status == 204
    await whole.call("POST", f"/v1/jobs/{first.job.id}/run-now", {})
    (second,) = await whole.claim()
    assert (await report(whole, second, {**FAILURE, "message": said})).status == 503
    await whole.hand(second, "w1")
    assert (await report(whole, second, {**FAILURE, "message": said})).status == 204
    assert len((await whole.call("GET", f"/v1/jobs/{first.job.id}")).body["history"]) == 2


async def test_a_job_that_an_emptied_store_does_not_have_yet_may_be_in_a_hand(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, held = await sent()

    async def coming(job_id: str) -> OnItsWay:
        await trio.lowlevel.checkpoint()
        return OnItsWay("")

    monkeypatch.setattr(whole.whole, "get_job", coming)
    assert (await report(whole, held, SUCCESS)).status == 503


@pytest.mark.parametrize("said", SAID)
async def test_the_daemon_that_handed_it_over_waits_for_no_store(autojump_clock: None, said: str) -> None:
    """It knows the lease from the moment in which it read the 202: one look suffices, wherever the hand-over is."""
    whole, held = await sent(max_retry=3)
    whole.runner.at_work[held.job.id] = Running("w1", 1, "mail", held.fence)
    looks: list[str] = []
    at_look(whole, 99, whole.apply, looks)
    told, state = SAID[said]
    for _ in range(2):
        assert (await report(whole, held, told)).status == 204
    assert looks[0] == "touch"
    assert looks[1] != "get_job", "nobody had to see how it stands"
    await whole.hand(held, "w1")
    view = (await whole.call("GET", f"/v1/jobs/{held.job.id}")).body
    assert view["state"] == state, "the hand-over came too late to change anything"
    assert len(view["history"]) == (said == "failure")


async def test_a_job_is_not_given_back_before_it_is_handed_over_and_nobody_says_it_is_lost(
    autojump_clock: None,
) -> None:
    whole, held = await sent()
    refused = [{"job_id": held.job.id, "lease_id": str(held.fence), "type": "refused"}]
    assert (await whole.call("POST", "/v1/outcomes", refused)).status == 503
    await whole.hand(held, "w1")
    (row,) = (await whole.call("POST", "/v1/outcomes", refused)).body["outcomes"]
    assert row["status"] == 200
    assert (await whole.call("GET", f"/v1/jobs/{held.job.id}")).body["state"] == "waiting"


@pytest.mark.parametrize("path", ["/job/{}", "/v1/jobs/{}", "/job/{}/polling?timeout=0"])
async def test_what_was_acknowledged_and_is_not_in_the_store_is_not_shown_as_it_was_before(
    autojump_clock: None, path: str
) -> None:
    whole, held = await sent()
    await whole.hand(held, "w1")
    whole.apply_fails = True
    assert (await report(whole, held, SUCCESS)).status == 204, "it is on disk"
    assert (await whole.call("GET", path.format(held.job.id))).status == 503
    whole.apply_fails = False
    assert (await whole.call("GET", path.format(held.job.id))).status == 200


async def test_a_job_that_waits_is_on_its_way_to_nobody(autojump_clock: None) -> None:
    whole, held = await sent()
    await whole.end(held, Fate.RETRY, worker="w2", message="no")
    assert (await report(whole, held, FAILURE)).status == 404
