"""Handlers that are code: a real daemon, a real store, real contexts in python3, node and sh."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jqd.client import Client, JobInfo
from jqd.client.job_info import FINAL_STATES
from tests.directories import short_directory
from tests.live.harness import AS_ROOT, LEASE, ROOT, Daemon, Process, wait_for
from tests.valkey import valkey

END_S = 40.0
PAGE = ROOT / "docs" / "use" / "CODE.md"
ALLOWED = LEASE | {"JQD_RUNNER__ALLOW_CODE": "true"}
SHOP = {
    "lang": "python",
    "eid": "shop",
    "before": "import os\nstarts = []\nstarts.append(os.getpid())",
    "beforeEach": "begun = 'yes'",
    "afterEach": "starts.append('after')",
}
SLOW = """
import os, subprocess, sys, time
if not argument:
    return "fine"
code = "import os, time; os.setsid(); os.fork() and os._exit(0); "
code += f"open({argument!r}, 'a').write(str(os.getpid()) + '\\\\n'); time.sleep(300)"
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", code])
print("started", flush=True)
time.sleep(300)
"""
LOOK = """
import os
open("left", "w").close()
try:
    seen = open(f"/proc/{os.getppid()}/environ").read()
except OSError:
    seen = ""
return [dict(os.environ), os.getcwd(), os.listdir(), seen if os.getuid() else ""]
"""
LIMITS = {
    "eats": ("python", "return len(bytearray(10**9))", "MemoryError"),
    "eats-node": ("node", "for (const a = [];;) { a.push(Buffer.alloc(1e7, 1)); await 1 }", "MEMORY"),
    "talks": ("sh", "yes", "OUTPUT"),
    "forks": ("sh", "for i in $(seq 100); do sleep 60 & done; wait", "PROCESSES"),
    "writes": ("sh", "dd if=/dev/zero of=big bs=1M count=9 || exit 9", "exited with 9"),
    "dies": ("python", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "leaves": ("python", "raise SystemExit(3)", "exit(3)"),
}
HANDLERS: dict[str, dict[str, Any]] = {
    "double-python": {"lang": "python", "body": "return argument['n'] * 2"},
    "double-node": {"lang": "node", "body": "return (await Promise.resolve(argument.n)) * 2"},
    "double-sh": {
        "lang": "sh",
        "body": """sed 's/.*:\\([0-9]*\\)}/\\1/' | { read -r n; echo "200 $((n * 2))"; }""",
    },
    "lines": {
        "lang": "sh",
        "body": 'while read -r line; do [ "$line" = "200 good" ] && echo "J: next|$line"; echo "$line"; done',
        "options": {"batch": 3},
    },
    "next": {"lang": "python", "body": "print('J: last|' + argument); return payload.upper()"},
    "last": {"lang": "node", "body": "console.log('got', argument); return argument"},
    "one": SHOP | {"body": "return [begun, *starts]"},
    "two": SHOP | {"body": "if argument: raise ValueError('no')\nreturn [begun, *starts]"},
    "grow": {"lang": "python", "body": "return 1"},
    "slow": {"lang": "python", "body": SLOW, "options": {"batch": 2}},
    "long": {"lang": "sh", "body": "sleep 300"},
    "look": {"lang": "python", "body": LOOK},
    "slip": {"lang": "node", "body": "return {"},
    "bust": {"lang": "python", "body": "return 1", "before": "import nothing_of_that_name"},
    **{name: {"lang": lang, "body": body} for name, (lang, body, _) in LIMITS.items()},
}


class CodeWorker(Process):
    def __init__(self, base: Path, url: str, *flags: str, env: dict[str, str] | None = None) -> None:
        said = ("--file-mib", "4", "--drain", "5s", "--silence", "3s", *AS_ROOT, *flags)
        super().__init__(["worker", "--code", "--daemon", url, *said], base / "code.log", env)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with valkey() as server, short_directory() as base, Daemon(base / "one", "--store", server.url, env=ALLOWED) as one:
        for name, fields in HANDLERS.items():
            put(one, name, **fields)
        with CodeWorker(base, one.url) as worker:
            one.wait_worker("bust")
            yield one
            assert worker.stop() == 0, worker.log.read_text()
        assert one.stop() == 0


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.url) as client:
        yield client


def put(daemon: Daemon, name: str, **fields: Any) -> None:
    told = httpx2.put(f"{daemon.url}/v1/handlers/{name}", json=fields)
    assert told.status_code == 201, told.text


def ended(client: Client, job_id: str) -> JobInfo:
    info = client.get(job_id, wait=END_S)
    assert info.state in FINAL_STATES, info
    return info


def run(client: Client, name: str, argument: Any = None) -> JobInfo:
    return ended(client, client.push(name, argument, keep_result=True, max_retry=0))


@pytest.mark.parametrize("lang", ["python", "node", "sh"])
def test_code_runs(client: Client, lang: str) -> None:
    info = run(client, f"double-{lang}", {"n": 21})
    assert (info.state, str(info.result)) == ("succeeded", "42"), info


def test_lines_ask_for_jobs_and_fail_by_their_number(client: Client) -> None:
    """A batch in sh, by miniq's rules, and a chain through all languages."""
    lines = ["200 good", "404 nothing there", "503 not now"]
    ids = [client.push("lines", line, keep_result=True, max_retry=0) for line in lines]
    infos = [ended(client, job_id) for job_id in ids]
    assert [(info.state, info.exitcode) for info in infos] == [("succeeded", 200), ("failed", 404), ("failed", 503)]
    assert [info.result or info.message for info in infos] == ["good", "nothing there", "not now"]

    chained: dict[str, JobInfo] = {}

    def went_on() -> bool:
        """Jobs that move may be missing in one list: what was listed once is known."""
        chained.update((job.name, job) for job in client.jobs() if job.name in ("next", "last"))
        return len(chained) == 2

    wait_for(went_on, "the chain did not go on")
    assert [ended(client, job.job_id).argument for job in chained.values()] == ["200 good", "200 good"]


def test_before_runs_once_and_its_context_is_shared_by_eid(client: Client) -> None:
    first = run(client, "one").result
    assert first[0] == "yes"
    assert run(client, "two", True).state == "failed"
    assert run(client, "two").result == [*first, "after", "after"], "the same process; afterEach also after an error"


def test_a_new_version_counts_and_an_old_one_can_be_named(daemon: Daemon, client: Client) -> None:
    assert run(client, "grow").result == 1
    put(daemon, "grow", lang="node", body="return 2")
    wait_for(lambda: bool(run(client, "grow").result == 2), "the new version does not run")
    assert run(client, "grow@1").result == 1


def test_what_takes_too_long_is_killed_with_all_it_started(client: Client, tmp_path: Path) -> None:
    book = tmp_path / "pids"
    slow = client.push("slow", str(book), timeout=2, max_retry=0)
    fine = client.push("slow", False, keep_result=True)
    info = ended(client, slow)
    assert (info.state, info.exitcode, info.log) == ("failed", 504, "started"), info
    assert ended(client, fine).result == "fine", "its neighbour began anew"
    pids = [int(pid) for pid in book.read_text().split()]
    assert len(pids) == 3
    _wait_gone(pids)


def test_a_cancel_kills_what_runs(client: Client) -> None:
    job_id = client.push("long", timeout=300)
    wait_for(lambda: client.get(job_id).state == "running", "it does not run")
    client.cancel(job_id)
    assert ended(client, job_id).state == "cancelled"


@pytest.mark.parametrize("name", LIMITS)
def test_limits_end_an_attempt(client: Client, name: str) -> None:
    info = run(client, name)
    assert (info.state, LIMITS[name][2] in str(info.message)) == ("failed", True), info


@pytest.mark.parametrize(("name", "said"), [("bust", "nothing_of_that_name"), ("slip", "its code does not compile")])
def test_what_cannot_run_at_all_fails_no_job(daemon: Daemon, client: Client, name: str, said: str) -> None:
    job_id = client.push(name, keep_result=True, max_retry=0)

    def why() -> str:
        return str(httpx2.get(f"{daemon.url}/v1/jobs/{job_id}/why").json()["text"])

    wait_for(lambda: f"handler {name}@1 is broken since" in why() and said in why(), "nobody says why")

    def waits_untried() -> bool:
        info = client.get(job_id)  # in one look: it is tried and given back again and again
        return (info.state, info.attempts) == ("waiting", 0)

    wait_for(waits_untried, "its job does not wait, or attempts of it are counted")
    put(daemon, name, lang="python", body="return 1", before="import json")
    assert ended(client, job_id).result == 1


def test_code_sees_no_token_and_has_a_home_of_its_own(client: Client) -> None:
    env, cwd, files, seen = run(client, "look").result
    assert (env["HOME"], files, seen) == (cwd, ["left"], "")
    assert not [name for name in env if name.startswith("JQD_") and name != "JQD_CODE"]


@pytest.mark.long
def test_a_worker_that_is_killed_leaves_nothing_and_its_job_runs_again() -> None:
    """The worker proper first, which is started again, then who started it."""
    with valkey() as server, short_directory() as base, Daemon(base / "one", "--store", server.url, env=ALLOWED) as one:
        book = base / "book"
        body = f"echo run >>{book}; [ $(wc -l <{book}) = 3 ] || {{ setsid sleep 300 & sleep 300; }}; echo 200 ok"
        put(one, "hang", lang="sh", body=body)
        with Client(one.url) as client, CodeWorker(base, one.url, "--concurrency", "1") as worker:
            job_id = client.push("hang", keep_result=True, timeout=100, backoff=0.1)
            for runs in (1, 2):
                _wait_runs(book, runs)
                wait_for(lambda: len(_below(worker.child.pid)) >= 4, "worker, sh, and two sleeps")
                below = _below(worker.child.pid)
                os.kill(below[0] if runs == 1 else worker.child.pid, signal.SIGKILL)
                _wait_gone(below)
            with CodeWorker(base, one.url, "--concurrency", "1") as another:
                assert ended(client, job_id).result == "ok"
                assert another.stop() == 0
            assert client.get(job_id).attempts == 3


@pytest.mark.long
def test_a_machine_without_a_language_leaves_its_jobs_to_others_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    with valkey() as server, short_directory() as base, Daemon(base / "one", "--store", server.url, env=ALLOWED) as one:
        put(one, "echo", lang="sh", body="echo 200 fine")
        put(one, "double-node", **HANDLERS["double-node"])
        with CodeWorker(base, one.url, env={"PATH": str(tmp_path)}) as poor, Client(one.url) as client:
            (base / "other").mkdir()
            job_id = client.push("double-node", {"n": 21}, keep_result=True)

            def why() -> str:
                return str(httpx2.get(f"{one.url}/v1/jobs/{job_id}/why").json()["text"])

            wait_for(lambda: "no process of it starts here: node cannot be started" in why(), "nobody says why")
            assert run(client, "echo").result == "fine"
            with CodeWorker(base / "other", one.url) as rich:
                assert ended(client, job_id).result == 42
                assert (rich.stop(), poor.stop()) == (0, 0)


@pytest.mark.long
def test_the_page_is_true() -> None:
    """Its first commands, typed as they stand, beside a `jqd dev` on a port that is free."""
    dev, first, batch = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert dev == "JQD_RUNNER__ALLOW_CODE=true jqd dev &\n"
    with short_directory() as base:
        said = ["dev", "--bind", "127.0.0.1:0", "--data-dir", str(base / "d")]
        with Process(said, base / "log", {"JQD_RUNNER__ALLOW_CODE": "true"}) as process:
            url = process.wait_line("is ready at").split()[-1]
            if os.geteuid() == 0:
                assert "code runs as root here: no limit of processes holds" in process.log.read_text()
            env = os.environ | {"JQD_URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            for command in (first + batch).splitlines():
                told = subprocess.run(
                    ["sh", "-c", command], env=env, capture_output=True, text=True, timeout=END_S, check=False
                )
                assert told.returncode == 0, (command, told)
                wanted = command.partition("# ")[2].partition(":")[0]
                assert wanted in (*told.stdout.split(), ""), (command, told)
            with Client(url) as client:
                (note,) = client.jobs(name="note")
                assert ended(client, note.job_id).argument == "hello"
            assert process.stop() == 0, process.log.read_text()


def test_a_worker_whose_token_is_refused_ends_and_is_not_started_again(daemon: Daemon, tmp_path: Path) -> None:
    said = ["worker", "--code", "--daemon", daemon.url, *AS_ROOT]
    with Process(said, tmp_path / "log", {"JQD_TOKEN": "jqd_nobodys"}) as worker:
        assert worker.child.wait(timeout=END_S) == 2
        assert "needs a token of the role worker" in worker.log.read_text()


def _wait_runs(book: Path, runs: int) -> None:
    wait_for(lambda: book.exists() and len(book.read_text().split()) == runs, "it does not run")


def _wait_gone(pids: Sequence[int]) -> None:
    wait_for(lambda: not any(map(_lives, pids)), f"something is left of {pids}")


def _below(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(one) for one in task.read_text().split()]
    return found[1:]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
