"""Ids of what is over: another content has them at once, at both daemons, and after the store was emptied."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2
import pytest

from jqd.client import Client
from tests.live.harness import QUICK, Cluster, cluster, wait_for
from tests.valkey import emptied

KEY = "the master key"


@pytest.fixture(scope="module")
def here() -> Iterator[Cluster]:
    with cluster({**QUICK, "JQD_API__MASTER_KEY": KEY}) as here:
        here.one.wait_worker("square")
        yield here


def _is_known(url: str, job: dict[str, Any]) -> bool:
    return httpx2.post(url, json=job).status_code == 200


def test_what_was_cancelled_is_no_other_content(here: Cluster) -> None:
    job = {"name": "square", "argument": {"n": 1}, "job_id": "uq", "keep_result": True}
    one, two = f"{here.one.url}/v1/jobs", f"{here.two.url}/v1/jobs"
    assert httpx2.post(one, json={**job, "delay": 600}).status_code == 201
    assert httpx2.post(two, json={**job, "priority": 3}).status_code == 409

    def is_named() -> bool:
        """What differs, once the store has the job."""
        detail = httpx2.post(two, json={**job, "priority": 3}).json()["detail"]
        return "with other content (priority, run_at or delay)" in detail

    wait_for(is_named, "what differs is not said")
    assert httpx2.delete(f"{two}/uq").status_code == 204
    assert httpx2.post(one, json={**job, "delay": 600}).status_code == 200, "a repeat of what was cancelled"
    assert httpx2.get(f"{one}/uq").json()["state"] == "cancelled"
    assert httpx2.post(two, json=job).status_code == 201
    with Client(here.one.url) as client:
        assert client.get("uq", 20).state == "succeeded"
        job_id = str(client.get("uq").id)
    assert here.worker.starts()[job_id] == 1
    emptied(here.server)
    for url in (one, two):
        wait_for(partial(_is_known, url, job), "told again, the same counts once")
    assert httpx2.get(f"{one}/uq").json()["state"] == "succeeded"
    assert httpx2.post(two, json={**job, "delay": 600}).status_code == 409
    assert here.worker.starts()[job_id] == 1, "neither runs again"


def test_an_id_of_skygear_is_free_when_its_job_has_ended(here: Cluster) -> None:
    told = {"api_key": KEY, "job": {"action": "square", "args": {"n": 2}}, "job_id": "sky"}
    for times, url in enumerate((here.one.url, here.two.url), 1):
        answer = httpx2.post(f"{url}/job/enqueue", json=told)
        assert (answer.status_code, answer.json()) == (200, {"result": {"job_id": "sky"}})
        with Client(url) as client:
            info = client.get("sky", 20)
        assert (info.state, here.worker.starts()[str(info.id)]) == ("succeeded", times)
    later = {**told, "run_at": "2999-01-31T08:00:00Z"}
    assert httpx2.post(f"{here.one.url}/job/enqueue", json=later).status_code == 200
    assert httpx2.post(f"{here.two.url}/job/enqueue", json=told).json()["error"]["name"] == "Duplicated"
    assert httpx2.post(f"{here.two.url}/job/cancel", json=told).status_code == 200
    assert httpx2.post(f"{here.two.url}/job/enqueue", json=told).status_code == 200
