"""Handlers in code where tokens are asked for: who sets them, and a code worker with no more than a worker's token."""

from typing import Any

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import AS_ROOT, LEASE, Daemon, Process
from tests.live.miniq import WAIT_S
from tests.live.test_tokens import jqd
from tests.valkey import valkey

ENV = {**LEASE, "JQD_HTTP__TOKENS": "required", "JQD_RUNNER__ALLOW_CODE": "true"}
NOWHERE = "http://127.0.0.1:9/"  # the discard port: nothing listens there


def test_a_workers_token_runs_the_code_of_its_jobtypes_whatever_other_versions_there_are() -> None:
    with valkey() as server, short_directory() as base, Daemon(base / "d", "--store", server.url, env=ENV) as daemon:

        def as_master(*words: str) -> str:
            return jqd(*words, "--url", daemon.url, "--data-dir", str(base / "d"))

        token = as_master("tokens", "create", "worker", "--scope", "mail", "--scope", "old*", "--scope", "fax@1")
        master = as_master("tokens", "create", "master")
        with Client(daemon.url, token=master) as client:
            # Of `mail` code is the newest version, of `old` the one before; `fax` is this worker's in its first version
            # alone, and `pay` is not.
            texts = (("mail", NOWHERE, "return 2"), ("old", "return 1", NOWHERE), ("fax", "return 4", "return 5"))
            for name, *bodies in (*texts, ("pay", "return 3")):
                for body in bodies:
                    client.set_handler(name, body, {}, lang="http" if body == NOWHERE else "python")
            flags = ["worker", "--code", "--daemon", daemon.url, *AS_ROOT]
            with Process(flags, base / "code.log", {"JQD_TOKEN": token}) as worker:
                kept: dict[str, Any] = {"keep_result": True, "max_retry": 0}
                ids = [client.push(name, **kept) for name in ("mail", "mail@2", "old@1", "fax@1")]
                assert [client.get(one, wait=WAIT_S).result for one in ids] == [2, 2, 1, 4], worker.log.read_text()
                (card,) = [row for row in client.workers() if row["url"] is None]
                assert sorted(card["jobs"]) == ["fax@1", "mail", "mail@2", "old@1"]
                assert worker.stop() == 0
        assert daemon.stop() == 0
