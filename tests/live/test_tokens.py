"""Two daemons that ask for tokens: the first one is made by who can read a data directory; tenants run apart; a revoked
token lets nobody in anywhere within 5 s, also while the store is away."""

import io
import os
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

import httpx2
import pytest

from jqd.cli import run
from jqd.client import Client, JqdClientError, NotFound
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Process, wait_for
from tests.valkey import valkey

REVOKED_S = 5.0


def jqd(*words: str, env: Mapping[str, str] = MappingProxyType({})) -> str:
    """What the command prints, run in this process: to start another takes longer than what it does."""
    out = io.StringIO()
    with patch.dict(os.environ, env), redirect_stdout(out):
        assert run(words) == 0
    return out.getvalue().strip()


def is_let_in(daemon: Daemon, token: str) -> bool:
    with Client(daemon.url, token=token) as client:
        try:
            client.get("none")
        except NotFound:
            return True
        except JqdClientError as error:
            return error.status == 503  # the store is away, and only it knows whose an id is
    raise AssertionError("there is such a job")


def is_there(client: Client, job_id: str) -> bool:
    try:
        return client.get(job_id).job_id == job_id
    except NotFound:
        return False


def is_out(daemons: tuple[Daemon, ...], token: str) -> bool:
    return not any(is_let_in(daemon, token) for daemon in daemons)


def demo(daemon: Daemon, token: str, log: Path) -> Process:
    words = ["worker", "jqd.worker.demo:app", "--daemon", daemon.url, "--bind", "127.0.0.1:0"]
    return Process(words, log, {"JQD_TOKEN": token})


FOLLOWED = """
import jqd

app = jqd.App()

@app.job
def own() -> None: ...

@app.job
def pay() -> None: ...

@app.job(max_retry=0)
def parent(what: str, /) -> None:
    jqd.current().push({"own": own, "pay": pay}[what])
"""


def follows_what_its_token_is_for(daemon: Daemon, token: str, base: Path) -> None:
    """Also where jobs are posted to a worker, and its answer has what is to follow."""
    (base / "followed.py").write_text(FOLLOWED)
    args = ["worker", "followed", "--jobs", "parent", "--daemon", daemon.url, "--bind", "127.0.0.1:0"]
    with (
        Process(args, base / "followed.log", {"JQD_TOKEN": token}, cwd=base) as worker,
        Client(daemon.url, token=token) as client,
    ):
        ended = {what: client.get(client.push("parent", what), wait=30) for what in ("own", "pay")}
        assert {what: info.state for what, info in ended.items()} == {"own": "succeeded", "pay": "failed"}
        assert "the worker's token is not for jobs 'pay'" in (ended["pay"].message or "")
        wait_for(partial(is_there, client, f"{ended['own'].job_id}.0"), "it does not follow")
        assert worker.stop() == 0


def gets_no_jobs_once_its_token_has_ended(one: Daemon, two: Daemon, boss: str, base: Path) -> None:
    """Also where the one above its token was revoked, at either daemon."""
    above = jqd("tokens", "create", "worker", env={"JQD_TOKEN": boss, "JQD_URL": one.url})
    token = jqd("tokens", "derive", "--ttl", "1h", env={"JQD_TOKEN": above, "JQD_URL": one.url})

    def states(daemon: Daemon) -> list[tuple[str, str]]:
        with httpx2.Client(headers={"authorization": f"Bearer {boss}"}, timeout=10) as http:
            rows = http.get(f"{daemon.url}/v1/workers").json()["workers"]
        return [(row["state"], row["token_id"]) for row in rows if row["url"]]

    with demo(one, token, base / "ended.log") as worker, Client(two.url, token=boss) as client:
        (info,) = client.wait([client.push("add", [1, 2])], timeout=30)
        assert info.state == "succeeded"
        client.revoke_token(above.split("_")[1])
        before_s = time.monotonic()
        over = [("token_ended", token.split("_")[1])]
        wait_for(lambda: [states(one), states(two)] == [over, over], "its registration holds on")
        assert time.monotonic() - before_s < REVOKED_S
        job_id = client.push("add", [1, 2])
        wait_for(lambda: "revoked or is over" in str(client.why(job_id)), "nobody says why it waits")
        worker.kill()
    with demo(one, boss, base / "anew.log") as worker, Client(two.url, token=boss) as client:
        assert client.get(job_id, wait=30).state == "succeeded", "another token's worker does not get it"
        assert worker.stop() == 0


def test_tokens_let_in_who_has_them_and_tenants_run_apart() -> None:
    env = {**QUICK, "JQD_HTTP__TOKENS": "required"}
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "one", *flags, env=env) as one, Daemon(base / "two", *flags, env=env) as two:
            assert one.get("/v1/jobs").status_code == 401
            assert (one.get("/livez").status_code, one.get("/readyz").status_code) == (200, 200)
            assert (base / "one" / "root.json").stat().st_mode & 0o777 == 0o600
            boss = jqd("tokens", "create", "master", "--data-dir", str(base / "one"))
            as_boss = {"JQD_TOKEN": boss, "JQD_URL": one.url}
            acme = jqd("tokens", "create", "worker", "--of", "acme", env=as_boss)
            other = jqd("tokens", "create", "push", "--of", "other", env=as_boss)
            scoped = jqd("tokens", "create", "worker", "--scope", "parent", "--scope", "own", env=as_boss)
            child = jqd("tokens", "derive", "--ttl", "1h", env={"JQD_TOKEN": other, "JQD_URL": one.url})
            wait_for(
                lambda: all(is_let_in(two, token) for token in (acme, other, child)),
                "the other daemon does not know them",
            )
            with (
                demo(one, acme, base / "worker.log") as worker,
                Client(two.url, token=acme) as theirs,
                Client(two.url, token=other) as strangers,
                Client(one.url, token=boss) as ours,
            ):
                waits = strangers.push("add", [1, 1])
                done = theirs.push("add", [1, 2], keep_result=True)
                (info,) = theirs.wait([done], timeout=30)
                assert (info.state, info.name, theirs.result(done)) == ("succeeded", "add", 3)
                for job_id in (done, "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
                    with pytest.raises(NotFound):
                        strangers.get(job_id)
                assert strangers.get(waits).state == "waiting", "nobody of that tenant runs it"
                assert {job.tenant for job in ours.jobs()} == {"acme", "other"}
                assert worker.stop() == 0
            follows_what_its_token_is_for(one, scoped, base)
            gets_no_jobs_once_its_token_has_ended(one, two, boss, base)
            jqd("tokens", "revoke", other.split("_")[1], env=as_boss)
            for token in (other, child):
                wait_for(partial(is_out, (one, two), token), "it still lets in")
            wait_for(
                lambda: "token revoke" in jqd("audit", env={**as_boss, "JQD_URL": two.url}), "nobody noted it there"
            )
            server.kill()
            with Client(one.url, token=boss) as ours:
                before_s = time.monotonic()
                assert ours.revoke_token(acme.split("_")[1]) == []
                assert is_out((one, two), acme)
                assert time.monotonic() - before_s < REVOKED_S
            assert is_let_in(two, boss)
            server.start()
            text = "".join(path.read_text() for path in base.glob("*.log"))
            assert not any(token[-43:] in text for token in (boss, acme, other))
            assert (one.stop(), two.stop()) == (0, 0)
            assert not (base / "one" / "root.json").exists()
