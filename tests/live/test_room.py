"""The memory for bodies, of a real daemon: pushes of a tenant that fill its share of it keep no worker's report out."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx2

from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, wait_for
from tests.live.test_tokens import jqd
from tests.valkey import valkey

ROOM_BYTES = 1_600_000
PUSH_BYTES = 200_000  # a few of them are the half that one tenant may have while others ask
REPORT_BYTES = 60_000
ENV = {
    **QUICK,
    "JQD_HTTP__TOKENS": "required",
    "JQD_API__BODIES_BYTES_MAX": str(ROOM_BYTES),
    "JQD_API__ARRAY_BYTES_MAX": str(ROOM_BYTES // 4),
    "JQD_API__JOB_BYTES_MAX": str(ROOM_BYTES // 4),
}


@contextmanager
def begun(daemon: Daemon, token: str) -> Iterator[socket.socket]:
    """A push whose body has come but for its last byte: it is here, and its request is not over."""
    host, port = daemon.bind.split(":")
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: {daemon.bind}\r\nauthorization: Bearer {token}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {PUSH_BYTES}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as pipe:
        pipe.sendall(head.encode() + b" " * (PUSH_BYTES - 1))
        yield pipe


def test_reports_of_a_tenants_worker_are_taken_beside_its_pushes() -> None:
    report = [{"job_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "lease_id": "none", "success": "x" * REPORT_BYTES}]
    with valkey() as server, short_directory() as base, Daemon(base / "d", "--store", server.url, env=ENV) as daemon:
        as_boss = {"JQD_TOKEN": jqd("tokens", "create", "master", "--data-dir", str(base / "d")), "JQD_URL": daemon.url}
        acme, zoo = (jqd("tokens", "create", "worker", "--of", tenant, env=as_boss) for tenant in ("acme", "zoo"))

        def post(path: str, token: str, body: object) -> int:
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            return httpx2.post(daemon.url + path, content=json.dumps(body), headers=headers, timeout=30).status_code

        with ExitStack() as pushes:

            def is_full() -> bool:
                """For acme, while somebody else asks, too. One more is begun each time: what came late was refused."""
                pushes.enter_context(begun(daemon, acme))
                post("/v1/jobs", zoo, {"name": "small"})
                return post("/v1/jobs", acme, {"name": "large", "argument": "x" * REPORT_BYTES}) == 503

            wait_for(is_full, "acme still has room for a push")
            assert post("/v1/jobs", zoo, {"name": "large", "argument": "x" * REPORT_BYTES}) == 201
            assert [post("/v1/outcomes", token, report) for token in (acme, zoo)] == [200, 200]
