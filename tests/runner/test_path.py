"""A web hook's job goes a short way: from the dispatching loop's hand to the outcome that waits for the next loop."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import jqd
from jqd.domain.clock import Inactivity
from jqd.domain.job import Fate
from jqd.runner.delivery import Delivery
from jqd.runner.runner import Runner
from tests.harness.worker import Script, answer, open_worker
from tests.runner.conftest import OpenHouse, hold

FILES_MAX, FUNCTIONS_MAX = 15, 63
WATCHED = f"{Path(jqd.__file__).parent}/"
ISOLATION = ("runner/crash_isolation.py", "runner/crash_site.py")
HOOK: Script = answer(200, b'{"sent": true}', kind="application/json")


@contextmanager
def calls() -> Iterator[dict[CodeType, int]]:
    """How often each function of jqd is called meanwhile; what stands in brackets counts as one, as does a task."""
    seen: dict[CodeType, int] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(WATCHED):
            seen[frame.f_code] = seen.get(frame.f_code, 0) + 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def files(seen: dict[CodeType, int]) -> set[str]:
    return {code.co_filename.removeprefix(WATCHED) for code in seen}


async def test_a_hook_that_succeeds_costs_few_functions_of_few_files(open_house: OpenHouse) -> None:
    async with open_worker(HOOK) as hook, open_house() as house:
        house.register(hook.url, style="webhook")
        await house.run_to_end(hold(1, keep_result=True))  # connects; from now on its connection is kept
        (held,) = hold(1, argument={"to": ["a", 1]}, keep_result=True)
        offer = house.runner.offer("mail", 0)
        assert offer is not None
        with calls() as seen:
            house.runner.run_jobs(offer.worker.id, "mail", [held])
            await house.runner.wait_stopped()
        # Of the next loop, and of what watches time limits.
        for other in (house.runner.wait_stopped.__func__, Runner.run, Delivery.expire, Inactivity.lasts_s):
            seen.pop(other.__code__, None)
        await house.stopped(2)
        outcome = house.outcomes[held.job.id]
        assert (outcome.fate, outcome.result) == (Fate.SUCCEEDED, b"\x81\xa4sent\xc3")
        assert len(hook.requests) == 2
        names = "\n".join(sorted(f"{code.co_filename.removeprefix(WATCHED)} {code.co_qualname}" for code in seen))
        assert len(files(seen)) <= FILES_MAX, names
        assert len(seen) <= FUNCTIONS_MAX, names


async def test_a_success_is_ended_once(open_house: OpenHouse) -> None:
    async with open_worker(HOOK) as hook, open_house() as house:
        house.register(hook.url, style="webhook")
        with calls() as seen:
            await house.run_to_end(hold(1))
        ends = {code.co_qualname: count for code, count in seen.items() if "runner/" in code.co_filename}
        once = ("Delivery.end", "DeliveryContext.outcome", "end_attempt", "InFlightJobs.stop", "CircuitBreaker.give")
        assert {name: ends[name] for name in once} == dict.fromkeys(once, 1)
        assert "finish" not in ends, "of what goes wrong nothing is asked"


async def test_crash_isolation_begins_with_a_loss(open_house: OpenHouse) -> None:
    async with open_worker(HOOK) as hook, open_house() as house:
        with calls() as seen:
            house.register(hook.url, style="webhook")
            for _ in range(3):
                await house.run_to_end(hold(1))
            assert house.runner.wanted()
        told = {code.co_qualname for code in seen if code.co_filename.removeprefix(WATCHED) in ISOLATION}
        assert told <= {"Suspects.__init__"}
