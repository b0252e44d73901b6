"""Jobs that only the server pushes, as a Python worker declares them: at both daemons, over the worker's end."""

from pathlib import Path
from typing import Any

import httpx2

from tests.live.harness import LEASE, Process, pair, wait_for

KEY = {"authorization": "Bearer the master key"}


def test_what_a_worker_declares_holds_at_both_daemons_and_outlives_it(tmp_path: Path) -> None:
    with pair({**LEASE, "JQD_API__MASTER_KEY": "the master key"}) as (_, one, two, _):
        args = ["worker", "tests.live.sealed:app", "--daemon", one.url]
        with Process(args, tmp_path / "log") as worker:
            one.wait_worker("pay")

            def push(url: str, headers: dict[str, str], **more: Any) -> httpx2.Response:
                return httpx2.post(
                    url + "/v1/jobs", json={"name": "pay", "argument": {"amount": 1}, **more}, headers=headers
                )

            wait_for(lambda: push(two.url, {}).status_code == 403, "told to the other daemon")
            assert push(one.url, {}).status_code == 403
            told = push(two.url, KEY, keep_result=True)
            done = httpx2.get(f"{one.url}/v1/jobs/{told.json()['job_id']}/result?wait=20", timeout=30)
            assert done.json() == {"result": 1}
            later = push(two.url, KEY, delay=600, job_id="inv-1").json()["job_id"]
            look = f"{one.url}/v1/jobs/{later}"
            wait_for(lambda: httpx2.get(look).json()["name"] == "pay", "in the store")
            for url in (one.url, two.url):
                assert httpx2.delete(f"{url}/v1/jobs/{later}").status_code == 403
                assert httpx2.patch(f"{url}/v1/jobs/{later}", json={"priority": 1}).status_code == 403
                assert httpx2.post(f"{url}/v1/jobs/{later}/run-now").status_code == 403
                cancelled = httpx2.post(f"{url}/v1/jobs/cancel", json={"name": "pay"}).json()
                assert cancelled["changed"] == 0
            assert httpx2.patch(look, json={"priority": 1}, headers=KEY).status_code == 200
            assert httpx2.delete(look, headers=KEY).status_code == 204
            for url in (one.url, two.url):
                taken = httpx2.post(url + "/v1/jobs", json={"name": "order", "job_id": later})
                assert taken.status_code == 409, "without `replace` nobody looks what it would replace"
            outer = httpx2.post(one.url + "/v1/jobs", json={"name": "order", "keep_result": True}).json()["job_id"]
            followed = f"{two.url}/v1/jobs/{outer}.0/result?wait=20"
            wait_for(lambda: httpx2.get(followed, timeout=30).json() == {"result": 7}, "jobs push it")
            assert worker.stop() == 0
        assert push(one.url, {}).status_code == push(two.url, {}).status_code == 403
