"""Lists that go in several requests, at a daemon in memory: what becomes of each job does not depend on the cut."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jqd
from jqd.api import ApiConfig
from jqd.client import Client, Conflict, Invalid, PartlyPushed, TooLarge
from jqd.testing.trial import Trial

JOB_BYTES_MAX = 200
JOBS_MAX = 12  # in a list
JOBS: dict[str, Mapping[str, Any]] = {
    "good": {},
    "invalid": {"priority": "high"},
    "large": {"argument": "a" * JOB_BYTES_MAX},
    "conflict": {"job_id": "taken"},
}


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jqd.testing.trial.edge.ApiConfig", lambda: ApiConfig(job_bytes_max=JOB_BYTES_MAX))
        with jqd.App().testing("fake") as opened:
            opened.client.push_many([{"name": "other", "job_id": f"taken{index}"} for index in range(JOBS_MAX)])
            yield opened


def job_of(index: int, kind: str, size: int = 0) -> dict[str, Any]:
    """The job at this index of a list. Each conflict needs an id of its own, as a request with one twice is refused."""
    job = {"name": "mail", "argument": f"{index} " + "b" * size, **JOBS[kind]}
    return {**job, "job_id": f"taken{index}"} if kind == "conflict" else job


def pushed(client: Client, jobs: Sequence[Mapping[str, Any]]) -> tuple[list[str | None], set[int | None]]:
    """Push a list. Returns the ids, None for each job that was not taken, and the indexes of the jobs that are named as
    refused."""
    try:
        return [*client.push_many(jobs)], set()
    except PartlyPushed as error:
        if error.__cause__ is not None:
            raise
        return error.job_ids, {one.index for one in error.errors}
    except (Invalid, Conflict, TooLarge) as error:
        return [None] * len(jobs), {one.index for one in error.errors}


def test_a_request_without_a_good_job_keeps_no_other_from_being_sent(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.client.send.PUSH_JOBS_MAX", 2)
    for kind in JOBS.keys() - {"good"}:
        jobs = [job_of(index, kind if index < 2 else "good") for index in range(6)]
        ids, named = pushed(trial.client, jobs)
        assert ([job_id is not None for job_id in ids], named) == ([False] * 2 + [True] * 4, {0, 1}), kind


@pytest.mark.parametrize("url", ["http://one", "http://one,http://two"])
@settings(max_examples=40, deadline=None)
@given(
    listed=st.lists(st.tuples(st.sampled_from(sorted(JOBS)), st.integers(0, 100)), max_size=JOBS_MAX),
    jobs_max=st.integers(1, JOBS_MAX),
    bytes_max=st.integers(1, 1_000),
)
def test_each_good_job_is_sent_once_and_each_bad_one_is_named_whatever_the_cut(
    trial: Trial, url: str, listed: Sequence[tuple[str, int]], jobs_max: int, bytes_max: int
) -> None:
    jobs = [job_of(index, kind, size) for index, (kind, size) in enumerate(listed)]
    entered = trial._daemon.pushed
    before = len(entered)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jqd.client.send.PUSH_JOBS_MAX", jobs_max)
        patch.setattr("jqd.client.send.PUSH_BYTES_MAX", bytes_max)
        ids, named = pushed(Client(url, transport=trial._transport), jobs)
    good = [index for index, (kind, _) in enumerate(listed) if kind == "good"]
    taken = [job_id for job_id in ids if job_id is not None]
    assert [index for index, job_id in enumerate(ids) if job_id is not None] == good
    assert named == set(range(len(jobs))) - set(good)
    for found in (entered[before:], taken):
        assert [trial.client.get(job_id).argument for job_id in found] == [jobs[index]["argument"] for index in good]
