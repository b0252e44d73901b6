"""Chains, groups and what follows them, without a server: what is pushed, and that `app.testing` runs it."""

from typing import Any

import anyio
import msgspec
import pytest

import jqd
from jqd import after, chain, group
from jqd.client import GroupWaits, JobFailed, JqdClientError
from jqd.testing.trial import Mode

app = jqd.App("http://127.0.0.1:9")  # nobody's: what left the process would fail


@app.job
def double(number: int) -> int:
    return 2 * number


@app.job(keep_result=True)
def total(numbers: list[int | None], /) -> int:
    return sum(number or 0 for number in numbers)


@app.job(keep_result=True)
def label(number: int, text: str = "it is", *, mark: str = "!") -> str:
    return f"{text} {number}{mark}"


@app.job(keep_result=True, max_retry=0)
def fail(number: int) -> int:
    raise ValueError(f"no {number}")


@app.job
def note(number: int, **fields: str) -> None: ...


@app.job(keep_result=True)
def tick() -> str:
    return "tick"


@pytest.mark.parametrize("mode", ["fake", "inline"])
def test_a_trial_runs_chains_and_groups(mode: Mode) -> None:
    with app.testing(mode) as trial:
        ref = chain(double.s(1), double.s(), label.s("is", mark="?")).push()
        fan = group(double.s(1), chain(double.s(2), double.s())).then(total.s()).push()
        late = after(*ref.last, fan.last[0]).then(tick.s()).push()
        by_group = chain(double.s(3), group(label.s(), label.s("was"))).push()
        if mode == "fake":
            assert {job.state for job in trial.pushed(label)} == {"blocked"}
            trial.run_all()
        assert (ref.result(), fan.result(), late.result()) == ("is 4?", 10, "tick")
        assert by_group.result() == ["it is 6!", "was 6!"]
        assert all(job.attempts == 1 for job in trial.pushed())


def test_a_failure_reaches_the_end_of_a_chain_and_a_policy_stops_it() -> None:
    with app.testing("inline"):
        ref = chain(fail.s(1), double.s(), label.s()).push()
        with pytest.raises(JobFailed, match="PARENT_FAILED"):
            ref.result()
        assert group(double.s(1), fail.s(2)).then(total.s().set(on_parent_failure="run")).push().result() == 2
        cancelled = group(fail.s(2)).then(total.s().set(on_parent_failure="cancel")).push()
        assert [info.state for info in cancelled.wait()] == ["cancelled"]


def test_a_trial_tells_of_groups_and_flows_and_takes_a_key_once() -> None:
    with app.testing("fake") as trial:
        ref = group(double.s(1), fail.s(2)).then(total.s()).push()
        assert {job.state for job in ref.flow().jobs} == {"waiting", "blocked"}
        trial.run_all()
        told = trial.client.group(ref.groups[0])
        counts = {state: count for state, count in told.counts.items() if count}
        assert (told.jobs, counts, told.progress) == (2, {"succeeded": 1, "failed": 1}, 1.0)
        assert [error["name"] for error in told.errors] == ["fail"]
        assert ref.retry().changed == 2
        assert ref.cancel().changed == 2

        once = double.options(unique="key", while_="waiting", debounce="1m")
        first, again = once.push(1), once.push(2)
        assert (first.duplicate, again.duplicate, first.job_id == again.job_id) == (False, True, True)
        trial.advance("59s")
        assert first.status().attempts == 0
        trial.advance("1s")
        assert (first.status().state, first.status().argument) == ("succeeded", {"number": 2})
        assert once.push(3).job_id != first.job_id

        double.options(group="by hand", keep_result=True).push(4)
        waits = trial.client.close_group("by hand", total.s().following())
        assert waits is not None
        trial.run_all()
        assert total.ref(waits.job_id).result() == 8
        assert trial.client.group("by hand").then == GroupWaits(job_id=waits.job_id, state="succeeded")


def test_followers_and_delays_come_at_their_time() -> None:
    with app.testing("fake") as trial:
        ref = chain(double.s(1), label.s().set(delay="1h")).push()
        trial.run_all()
        trial.advance("59m")
        assert [job.attempts for job in trial.pushed(label)] == [0]
        trial.advance("1m")
        assert ref.result() == "it is 2!"
        then = double.options(then=label.s(mark=".").following()).push(4)
        trial.run_all()
        assert [job.argument for job in trial.pushed(label)][-1] == {"number": 8, "mark": "."}, then


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_flow_and_a_job_are_awaited(backend: str) -> None:
    async def main() -> None:
        with app.testing("inline"):
            ref = await chain(double.s(1), label.s()).apush()
            assert await ref == "it is 2!"
            assert await ref.last[0] == "it is 2!"
            assert await ref.aresult("1s") == "it is 2!"

    anyio.run(main, backend=backend)


def told(step: Any) -> list[dict[str, Any]]:
    """The jobs of a flow as they are pushed, with short ids."""

    class Taker:
        jobs: list[dict[str, Any]]

        def push_all(self, jobs: list[dict[str, Any]], *, atomic: bool, ack: object) -> None:
            assert (atomic, ack) == (True, None)
            self.jobs = jobs

    taker: Any = Taker()
    ref = step.push(taker)
    assert ref.job_ids == [job["job_id"] for job in taker.jobs]
    stem = ref.job_ids[0][:-1]
    return [
        {
            name: [each.removeprefix(stem) for each in value]
            if name == "after"
            else value.removeprefix(stem)
            if name == "group"
            else value
            for name, value in job.items()
            if name not in ("job_id", "name", "argument")
        }
        for job in taker.jobs
    ]


def test_each_job_says_what_it_waits_for_and_where_results_go() -> None:
    assert told(chain(double.s(1), double.s(), double.s(3))) == [
        {"keep_result": True},
        {"after": ["0"], "result_into": "number", "one_result": True},
        {"after": ["1"]},
    ]
    assert told(group(double.s(1), double.s(2)).then(total.s())) == [
        {"keep_result": True, "group": "0"},
        {"keep_result": True, "group": "0"},
        {"after": ["0", "1"], "keep_result": True},
    ]
    assert tick.s().following() == {"name": "tick", "argument": msgspec.Raw(b"\x80"), "keep_result": True}
    options = double.s(1).set(priority=3, delay="1m").set(priority=4)
    assert told(options) == [{"priority": 4, "delay": 60.0}]


def test_signatures_are_immutable_and_may_be_pushed_again() -> None:
    plain = double.s(1)
    urgent = plain.set(priority=-1)
    assert (dict(plain.options), dict(urgent.options)) == ({}, {"priority": -1})
    with app.testing("inline") as trial:
        twice = [chain(plain, double.s()).push() for _ in range(2)]
        assert len({job_id for ref in twice for job_id in ref.job_ids}) == 4
        assert len(trial.pushed()) == 4


def test_a_flow_under_an_own_id_counts_once() -> None:
    with app.testing("inline") as trial:
        for _ in range(2):
            ref = group(double.s(1), double.s(2)).then(total.s()).push(id="order-7")
            assert (ref.job_ids, ref.groups, ref.result()) == (
                ["order-7-0", "order-7-1", "order-7-2"],
                ["order-7-0"],
                6,
            )
        assert [job.attempts for job in trial.pushed()] == [1, 1, 1]
        with pytest.raises(JqdClientError, match="nothing was taken"):
            group(double.s(1), double.s(3)).then(total.s()).push(id="order-7")


def test_jobs_in_a_buffer_are_pushed_before_what_waits_for_them() -> None:
    sent: list[str] = []

    class Buffered(jqd.Ref[int]):
        def confirm(self, wait: Any = None) -> None:
            sent.append(self.job_id)

    ref = Buffered("double", lambda: app.client, int)
    ref.taken("x", duplicate=False)
    assert told(after(ref).then(total.s()))[0]["after"] == ["x"]
    assert sent == ["x"]


def test_what_cannot_work_is_refused_before_anything_is_pushed() -> None:
    with app.testing("fake") as trial:
        wrong: list[tuple[Any, str]] = [
            (lambda: double.s().push(), "leaves out number, and nothing comes before it"),  # type: ignore[misc]
            (lambda: double.s("x"), "takes"),  # type: ignore[call-overload]
            (lambda: note.s(number="x"), "takes"),
            (lambda: label.s(text=3), "takes"),  # type: ignore[call-overload]
            (lambda: tick.s(1), "takes no argument"),  # type: ignore[call-arg]
            (lambda: chain(double.s(1), after("x")).push(), "stands first"),
            (lambda: group(group(double.s(1))).push(), "a member of a group has one result"),
            (lambda: chain(double(1), total.s()), "step 1 of this chain is int, not a signature: write name.s"),  # type: ignore[call-overload]
            (lambda: group(double.s(1), double(2)), "step 2 of this group is int"),  # type: ignore[arg-type]
            (lambda: double.s(1).set(after=["x"]), "no option 'after'"),
            (lambda: double.s(1).set(colour=1), "no option 'colour'"),  # type: ignore[call-arg]
        ]
        for call, why in wrong:
            with pytest.raises(TypeError, match=why):
                call()
        no_jobs: list[Any] = [chain, group, after, lambda: after("x").push()]
        for empty in no_jobs:
            with pytest.raises(ValueError, match=r"at least one|no job here"):
                empty()
        assert not trial.pushed()
