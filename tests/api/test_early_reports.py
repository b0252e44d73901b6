"""A worker reports a job before the store knows that it has it: its 202 is on its way, or its hand-over is."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jqd.runner import Running
from jqd.words.job import Fate, Held, State
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


def at_look(whole: Whole, number: int, do: Callable[[], Awaitable[object]]) -> None:
    """Have that happen before the store is looked at for the so manieth time (0: before the first)."""
    looks = 0

    def before(name: str) -> None:
        its = getattr(whole.whole, name)

        async def looked(*args: Any, **options: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == number + 1:
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
    whole.runner.at_work[held.job.id] = Running("w2", 1, "mail")
    assert (await report(whole, held, SUCCESS)).status == 404
    await whole.hand(held, "w2")
    assert (await report(whole, held, SUCCESS)).status == 404, "it is in another's hand"


async def test_a_job_that_waits_is_on_its_way_to_nobody(autojump_clock: None) -> None:
    whole, held = await sent()
    await whole.end(held, Fate.RETRY, worker="w2", message="no")
    assert (await report(whole, held, FAILURE)).status == 404
