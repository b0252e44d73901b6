"""A worker whose registration's token has ended: nothing is posted to it, and what it lets follow is not taken."""

from jqd.domain.job import Fate
from jqd.runner.outcome import INVALID_JOBS
from tests.harness.worker import Reply, Request, open_worker
from tests.runner.conftest import OpenHouse, hold

TOKEN = "0123456789abcdef"


async def test_what_comes_after_its_tokens_end_lets_no_job_follow(
    open_house: OpenHouse,
) -> None:
    ended: set[str] = set()

    async def script(request: Request, reply: Reply) -> None:
        ended.add(TOKEN)
        first, second = (job["job_id"] for job in request.content()["jobs"])
        follows = [{"name": "next"}]
        await reply.outcomes(
            {"job_id": first, "type": "success", "jobs": follows}, {"job_id": second, "type": "success"}
        )

    async with open_worker(script) as worker, open_house() as house:
        house.workers.token_ended = ended.__contains__
        house.register(worker.url, token=TOKEN)
        first, second = await house.run_to_end(hold(2))
        assert (first.fate, second.fate, first.follows) == (Fate.FAILED, Fate.SUCCEEDED, b"")
        assert first.message.startswith(f"{INVALID_JOBS}: ")
        assert "token" in first.message
        assert house.runner.offer("mail", 0) is None


async def test_jobs_that_were_on_their_way_to_it_come_back_untried(
    open_house: OpenHouse,
) -> None:
    async with open_worker() as worker, open_house() as house:
        ended: set[str] = set()
        house.workers.token_ended = ended.__contains__
        house.register(worker.url, token=TOKEN)
        held = hold(2)
        house.run(held)
        ended.add(TOKEN)
        await house.stopped(2)
        assert (sorted(house.returned), worker.requests) == (sorted(each.job.id for each in held), [])
