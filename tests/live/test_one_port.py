"""`jqd serve --processes`: several daemons on one port, which share what comes, and of which any may die."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.client import Client
from jqd.processes import _is_needed
from tests.directories import short_directory
from tests.live.harness import LEASE, START_S, Daemon, Process, Worker, wait_for
from tests.valkey import Valkey, valkey

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
OPEN = "application/openmetrics-text;version=1.0.0"


class Several(Daemon):
    """A supervisor and its processes. Each request of this harness is a connection of its own."""

    def __init__(self, base: Path, processes: int, *args: str, env: dict[str, str] = LEASE) -> None:
        super().__init__(base / "d", "--processes", str(processes), *args, env=env)
        self.processes = processes

    def wait_line(self, part: str, timeout_s: float = 4 * START_S) -> str:
        """As of one, for as many as start side by side."""
        return super().wait_line(part, timeout_s)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [line for line in self.log.read_text().splitlines() if f'"{name}"' in line]
        return [json.loads(line) for line in lines]

    def pid(self, number: int) -> int:
        """Of the present life of a process."""
        found: int = [one for one in self.events("supervisor.process_started") if one["process"] == number][-1]["pid"]
        return found

    def readiness(self) -> dict[str, Any]:
        told: dict[str, Any] = self.get("/readyz").json()
        return told

    def wait_ready(self) -> None:
        wait_for(lambda: self.readiness()["status"] == "ready", "a process does not come back")

    def push(self, n: int) -> str:
        """By a connection of its own, which any process may get. Returns the job's id."""
        pushed = httpx2.post(f"{self.url}/v1/jobs", json={"name": "square", "argument": {"n": n}}, timeout=10)
        assert pushed.status_code == 201, pushed.text
        job_id: str = pushed.json()["job_id"]
        return job_id

    def pushed(self) -> dict[str, float]:
        """How many jobs each process took, by what a scrape says."""
        text = self.get("/metrics").text
        found = re.findall(r'^jqd_jobs_pushed_total\{process="(\d+)",type="square"\} (\S+)$', text, re.MULTILINE)
        return {number: float(count) for number, count in found}


@contextmanager
def several(processes: int, env: dict[str, str] = LEASE) -> Iterator[tuple[Several, Valkey, Path]]:
    with (
        valkey() as server,
        short_directory() as base,
        Several(base, processes, "--store", server.url, env=env) as daemon,
    ):
        yield daemon, server, base


def ran(worker: Worker, job_ids: list[str]) -> Callable[[], bool]:
    return lambda: not set(job_ids) - set(worker.starts())


def test_processes_share_what_comes_and_one_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with several(2) as (daemon, _, base):
        jobs = [daemon.push(n) for n in range(40)]  # 40 connections to one of two: once in 10^12 times
        taken = daemon.pushed()
        assert sorted(taken) == ["0", "1"]
        assert (min(taken.values()) > 0, sum(taken.values())) == (True, 40)
        assert {row["process"] for row in daemon.readiness()["processes"]} == {0, 1}
        daemon.wait_ready()

        jobs += [daemon.push(n) for n in range(10)]
        journal, old = base / "d" / "journal" / "process-1", daemon.pid(1)
        os.mkfifo(slow := journal / f"{10**19:020}.jqd")  # its next start comes to this, and no further
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: (journal / "lock").read_text() == f"{daemon.pid(1)}\n" != f"{old}\n", "nobody starts it")
        jobs += [daemon.push(n) for n in range(20)]  # whoever connects now meets the other one
        with suppress(ProcessLookupError):  # it has come to what is no segment, and ended by itself
            os.kill(daemon.pid(1), signal.SIGKILL)
        slow.unlink()
        (died, *_) = daemon.events("supervisor.process_died")
        assert (died["process"], died["how"], died["again_in_s"]) == (1, "killed by SIGKILL", 0)
        with Worker(tmp_path / "book", daemon.url) as worker:
            wait_for(ran(worker, jobs), "a job is lost")
        daemon.wait_ready()

        def are_listed() -> bool:
            return len(httpx2.get(f"{daemon.url}/v1/daemons", timeout=10).json()["daemons"]) == 2

        wait_for(are_listed, "a process that came back is not listed")
        assert (base / "d" / "journal").is_dir()
        assert (base / "d" / "journal" / "process-1").is_dir()
        assert daemon.stop() == 0
        assert daemon.events("supervisor.stopped")[0]["code"] == 0


@pytest.mark.long
def test_each_answers_for_all_and_says_who_is_away() -> None:
    # Each connection that the stopped one gets costs up to 10 s, and after 30 s without a sign of life it is killed.
    with several(2, {**LEASE, "WATCHDOG_USEC": "3600000000"}) as (daemon, _, _):
        os.kill(daemon.pid(1), signal.SIGSTOP)  # it listens, and answers nobody: whoever meets it waits
        try:
            told = one_that_answers(daemon, "/readyz").json()
            assert (told["status"], told["push"]["ready"]) == ("degraded", True)
            assert "process 1 is away: it does not answer within 0.7 s" in told["warnings"]
            assert [row["push"]["ready"] for row in told["processes"]] == [True, False]
            assert one_that_answers(daemon, "/readyz/push").status_code == 200
            text = one_that_answers(daemon, "/metrics").text
            assert 'jqd_process_up{process="0"} 1.0\njqd_process_up{process="1"} 0.0\n' in text
        finally:
            os.kill(daemon.pid(1), signal.SIGCONT)
        daemon.wait_ready()
        told_open = httpx2.get(f"{daemon.url}/metrics", headers={"accept": OPEN}, timeout=10).text
        assert told_open.endswith("\n# EOF\n")
        assert told_open.count("# EOF") == 1
        alone = httpx2.get(f"{daemon.url}/readyz", headers={"jqd-process": "alone"}, timeout=10).json()
        assert "processes" not in alone


def one_that_answers(daemon: Several, path: str) -> httpx2.Response:
    """An answer of a process that goes on: a connection to another one is never accepted."""
    for _ in range(60):
        try:
            return httpx2.get(daemon.url + path, timeout=10 if "metrics" in path else 3)
        except httpx2.ReadTimeout:
            continue
    raise AssertionError("nobody answers")


@pytest.mark.long
def test_settings_are_loaded_again_by_all_and_hold_for_a_process_that_comes_later() -> None:
    with valkey() as server, short_directory() as base:
        file = base / "jqd.toml"
        file.write_text(f'processes = 2\n[store]\nurl = "{server.url}"\n')
        with Several(base, 2, "--config", str(file)) as daemon:
            assert daemon.events("supervisor.process_died") == []
            file.write_text(f'processes = 2\n[store]\nurl = "{server.url}"\n[api]\njob_bytes_max = 60\n')
            os.kill(daemon.child.pid, signal.SIGHUP)
            wait_for(lambda: len(daemon.events("config.reloaded")) == 3, "not all have loaded it")
            for one in daemon.events("config.reloaded"):
                assert one["changed"] == {"api.job_bytes_max": "60B"}
                assert one["needs_restart"] == [], "what differs between processes is no change"
            os.kill(daemon.pid(0), signal.SIGKILL)
            wait_for(lambda: len(daemon.events("daemon.ready")) == 3, "it does not come back")
            long = {"name": "square", "argument": "x" * 100}
            answers = {httpx2.post(f"{daemon.url}/v1/jobs", json=long, timeout=10).status_code for _ in range(40)}
            assert answers == {413}


@pytest.mark.long
def test_fewer_processes_leave_no_journal_behind(tmp_path: Path) -> None:
    with several(3) as (daemon, server, base):
        jobs = [daemon.push(n) for n in range(60)]
        assert (len(taken := daemon.pushed()), min(taken.values()) > 0) == (3, True)
        assert daemon.stop() == 0
        server.kill()
        shutil.rmtree(server.directory / "appendonlydir")  # only the journals know of these jobs now
        server.start()
        with Several(base, 1, "--store", server.url) as one:
            assert [row["process"] for row in one.readiness()["processes"]] == [0, 1, 2]
            told = "takes no pushes and begins no jobs: processes = 1."
            surplus = ["1", "2"]
            wait_for(
                lambda: [text.split(" ")[1] for text in one.readiness()["warnings"] if told in text] == surplus,
                "nobody says that there are more",
            )
            jobs += [one.push(n) for n in range(10)]
            assert {number for number, count in one.pushed().items() if count} == {"0"}
            with Worker(tmp_path / "book", one.url, concurrency=3) as worker:
                wait_for(ran(worker, jobs), "a job is stranded")
                with Client(one.url) as client:
                    assert [info.state for info in client.wait(jobs, timeout=60)] == ["succeeded"] * len(jobs)
            rows = httpx2.get(f"{one.url}/v1/daemons", timeout=10).json()["daemons"]
            assert len(rows) == 3
            assert one.stop() == 0


@pytest.mark.long
def test_a_setting_that_one_process_alone_took_is_not_left_behind() -> None:
    names = {f"nightly-{n}" for n in range(20)}

    def known(one: Several) -> set[str]:
        return {each["name"] for each in one.get("/v1/schedules").json()["schedules"]}

    with several(2) as (daemon, server, base):
        server.kill()
        shutil.rmtree(server.directory / "appendonlydir")
        for name in names:  # each by a connection of its own, which any process may get
            wanted = {"cron": "0 3 1 1 *", "job": {"name": "square"}}
            answer = httpx2.put(f"{daemon.url}/v1/schedules/{name}", json=wanted, timeout=10)
            assert answer.status_code in (200, 201), answer.text
        journal = base / "d" / "journal"
        wait_for(lambda: not _is_needed(journal / "process-1", [journal]), "process 0 is not told of them")
        assert daemon.stop() == 0
        server.start()
        with Several(base, 1, "--store", server.url) as one:
            assert (journal / "process-1.left").is_dir(), "nothing stands in it alone"
            wait_for(lambda: known(one) == names, "a schedule is lost")
            assert one.stop() == 0


@pytest.mark.long
def test_a_token_that_is_revoked_while_the_store_is_away_holds_at_no_process() -> None:
    with several(2, env={**LEASE, "JQD_HTTP__TOKENS": "required"}) as (daemon, server, base):
        root = {"authorization": f"Bearer {json.loads((base / 'd' / 'root.json').read_text())['token']}"}
        made = httpx2.post(f"{daemon.url}/v1/tokens", json={"role": "viewer"}, headers=root, timeout=10).json()
        bearer = {"authorization": f"Bearer {made['token']}"}

        def answers() -> set[int]:  # each by a connection of its own
            return {httpx2.get(f"{daemon.url}/v1/me", headers=bearer, timeout=10).status_code for _ in range(12)}

        wait_for(lambda: answers() == {200}, "one does not know the token")
        server.kill()
        revoked = httpx2.delete(f"{daemon.url}/v1/tokens/{made['token_id']}", headers=root, timeout=10)
        assert revoked.status_code == 200, revoked.text
        wait_for(lambda: answers() == {401}, "it holds on")
        daemon.kill()


@pytest.mark.long
def test_an_own_store_and_the_root_token_belong_to_all_and_the_end_of_the_supervisor_is_theirs(tmp_path: Path) -> None:
    with short_directory() as base:
        with Several(base, 2, env={**LEASE, "JQD_HTTP__TOKENS": "required"}) as daemon:
            root = json.loads((base / "d" / "root.json").read_text())
            assert root["url"] == daemon.url
            bearer = {"authorization": f"Bearer {root['token']}"}
            asked = [httpx2.get(f"{daemon.url}/v1/daemons", headers=bearer, timeout=10) for _ in range(12)]
            assert {answer.status_code for answer in asked} == {200}
            assert httpx2.get(f"{daemon.url}/metrics", headers=bearer, timeout=10).text.count("jqd_build_info{") == 2
            pids = [daemon.pid(0), daemon.pid(1)]
            daemon.kill()
            wait_for(lambda: not any(map(is_there, pids)), "they outlive it")
        with Several(base, 2) as daemon:
            daemon.wait_ready()
            assert daemon.interrupt() == 0


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists()


@pytest.mark.long
def test_a_backup_has_the_journals_of_all(tmp_path: Path) -> None:
    with short_directory() as base:
        with Several(base, 2) as daemon:
            jobs = [daemon.push(n) for n in range(30)]
            assert min(daemon.pushed().values()) > 0
            assert run(["backup", str(base / "copy"), "--data-dir", str(base / "d")]) == 0
            assert run(["restore", str(base / "copy"), "--data-dir", str(base / "d")]) == Exit.USAGE, "it lives there"
            daemon.kill()
        new = base / "new" / "d"
        assert run(["restore", str(base / "copy"), "--data-dir", str(new)]) == 0
        shutil.rmtree(new / "store")  # only the journals tell of these jobs
        with Several(new.parent, 2) as daemon, Worker(tmp_path / "book", daemon.url) as worker:
            wait_for(ran(worker, jobs), "a job is in no journal")


@pytest.mark.long
def test_what_cannot_be_started_ends_all_with_its_code() -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Several(base, 2, *flags) as daemon:
            args = ["serve", "--processes", "2", "--bind", "127.0.0.1:0", "--data-dir", str(base / "d"), *flags]
            with Process(args, base / "second.log") as second:
                assert second.child.wait(timeout=4 * START_S) == 1
                assert "is in use by another daemon (process" in second.log.read_text()
            args[4] = daemon.bind
            with Process(args, base / "third.log") as third:
                assert third.child.wait(timeout=4 * START_S) == 1
                assert f"cannot listen on {daemon.bind}" in third.log.read_text(), "nobody joins its port by a slip"


@pytest.mark.long
def test_a_service_manager_hears_of_all_and_a_process_that_hangs_is_started_again() -> None:
    heard: list[str] = []
    with short_directory() as base, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(base / "notify"))

        def listen() -> None:  # its queue has room for few
            while data := manager.recv(4096):
                heard.append(data.decode())

        reader = threading.Thread(target=listen, daemon=True)
        reader.start()
        env = {**LEASE, "NOTIFY_SOCKET": str(base / "notify"), "WATCHDOG_USEC": "3000000"}
        with Several(base, 2, env=env) as daemon:
            wait_for(lambda: any(told.startswith("READY=1\nSTATUS=process 0: ") for told in heard), "never ready")
            well = "READY=1\nSTATUS=process 0: takes jobs; runs jobs; process 1: takes jobs; runs jobs\nWATCHDOG=1"
            wait_for(lambda: heard[-1] == well, "not both run jobs")
            os.kill(daemon.pid(1), signal.SIGSTOP)
            wait_for(lambda: bool(daemon.events("supervisor.process_died")), "it hangs on")
            assert daemon.events("supervisor.process_hangs")[0]["process"] == 1
            wait_for(lambda: "process 1: killed by SIGKILL, death 1 in a row" in heard[-1], "no word of it")
            wait_for(lambda: heard[-1] == well, "it does not come back")
            assert daemon.stop() == 0
            assert [told for told in heard if told.startswith("STOPPING=1\nEXTEND_TIMEOUT_USEC=35000000\n")]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(base / "notify"))
        reader.join(START_S)


@pytest.mark.skipif(subprocess.run([*UNSHARE, "true"], check=False).returncode != 0, reason="it may not be root here")
def test_as_the_first_process_of_a_container_it_reaps_what_it_did_not_start() -> None:
    with short_directory() as base:
        serve = f"exec {sys.executable} -m jqd serve --processes 2 --bind 127.0.0.1:0 --data-dir {base / 'd'}"
        with Process([f"sleep 0.1 & {serve}"], base / "log", program=(*UNSHARE, "sh", "-c")) as box:
            box.wait_line("jqd is ready")
            (first,) = children_of(box.child.pid)
            wait_for(lambda: len(children_of(first)) == 3, "the dead lie about: these are two processes and the store")


def children_of(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
