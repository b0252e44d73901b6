"""A worker registers at one of three daemons: all know it and share its slots; no restart and no wipe forgets it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import redis
import trio

from jqd.client import Client
from jqd.domain.record import Lane, decode_rules
from jqd.journal import Files
from jqd.journal.frame import Frame
from jqd.journal.inspect import snapshot, walk
from jqd.worker.app import App
from jqd.worker.serve import serve
from tests.directories import short_directory
from tests.live.harness import QUICK, WAIT_S, Daemon, ingested, wait_for
from tests.valkey import Valkey, valkey

KNOWN_S = 2.0


class Holding(ThreadingHTTPServer):
    """Takes batches, and answers when it is told to: every job succeeded."""

    daemon_threads = True

    def __init__(self) -> None:
        self.held, self.most, self.lock, self.answer = 0, 0, threading.Lock(), threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/run"

    @contextmanager
    def serving(self) -> Iterator["Holding"]:
        thread = threading.Thread(target=self.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.answer.set()
            self.shutdown()
            thread.join()
            self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Holding

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        jobs = len(msgspec.msgpack.decode(body)["jobs"])
        with self.server.lock:
            self.server.held += jobs
            self.server.most = max(self.server.most, self.server.held)
        self.server.answer.wait(60)
        with self.server.lock:
            self.server.held -= jobs
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def say(daemon: Daemon, **card: Any) -> dict[str, Any]:
    told = httpx2.post(f"{daemon.url}/v1/workers", json={"max_jobs": 10, "jobs": ["hold"], **card}, timeout=10)
    assert told.status_code == 201, told.text
    answer: dict[str, Any] = told.json()
    return answer


def forget(server: Valkey) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()


def known(daemon: Daemon) -> list[str]:
    return [row["worker_id"] for row in daemon.get("/v1/workers").json()["workers"]]


def wait_known(daemons: list[Daemon], ids: list[str], within_s: float = KNOWN_S) -> None:
    """All daemons have the same list, in time."""
    deadline_s = time.monotonic() + within_s
    while (found := [known(daemon) for daemon in daemons]) != [ids] * len(daemons):
        assert time.monotonic() < deadline_s, f"{found} after {within_s} s, not {ids}"
        time.sleep(0.02)  # watches processes of their own


@pytest.mark.long
def test_one_registration_holds_at_all_daemons() -> None:
    with valkey() as server, short_directory() as base, Holding().serving() as holder:
        flags = ("--store", server.url)
        with (
            Daemon(base / "one", *flags, env=QUICK) as one,
            Daemon(base / "two", *flags, env=QUICK) as two,
            Daemon(base / "three", *flags, env=QUICK) as three,
            Client(two.url) as client,
        ):
            all_of_them = [one, two, three]
            wait_for(lambda: len(two.get("/v1/daemons").json()["daemons"]) == 3, "they do not know each other")
            told = say(one, name="holder", url=holder.url)
            wait_known(all_of_them, [told["worker_id"]])
            assert say(three, name="holder", url=holder.url)["worker_id"] == told["worker_id"], (
                "one server is one worker"
            )
            wait_for(lambda: len(say(one, name="holder", url=holder.url)["daemons"]) == 3, "its slots are not shared")
            time.sleep(1)  # for all daemons to hear of each other

            ids = client.push_many([{"name": "hold"}] * 60)
            wait_for(lambda: holder.held == 10, "its slots are not filled")
            time.sleep(1)  # in which somebody might post too many
            assert holder.most == 10
            holder.answer.set()
            wait_for(lambda: all(client.get(job_id).state == "succeeded" for job_id in ids), "not run")
            assert holder.most == 10

            forget(server)
            one.kill()
            with Daemon(base / "one", *flags, env=QUICK) as again:
                wait_known([again, two, three], [told["worker_id"]], 10)
                three.kill()
                with Daemon(base / "three", *flags, env=QUICK) as third:
                    wait_known([again, two, third], [told["worker_id"]], 10)
                    assert httpx2.delete(f"{two.url}/v1/workers/{told['worker_id']}").status_code == 204
                    wait_known([again, two, third], [])
                    forget(server)
                    time.sleep(1)  # in which the journals are told again
                    wait_known([again, two, third], [])


def kept(data_dir: Path, *, deleted: bool = False) -> set[str]:
    """Of what the journal of a daemon has rules, wherever they were said: half a second after they hold there."""
    files = Files()
    found = [piece for seen in snapshot(files, data_dir / "journal") for piece in walk(files, seen, kinds={Lane.RULES})]
    settings = [setting for piece in found if isinstance(piece, Frame) for setting in decode_rules(piece.body)]
    return {setting.name for setting in settings if setting.is_deleted or not deleted}


def seen(daemon: Daemon) -> dict[str, str]:
    rows = daemon.get("/v1/workers").json()["workers"]
    return {each["daemon"]: each["state"] for row in rows for each in row["seen"]}


def wait_seen(daemons: list[Daemon], expected: dict[str, str]) -> None:
    """Until all of them show that of each."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := [seen(each) for each in daemons]) != [expected] * len(daemons):
        assert time.monotonic() < deadline_s, f"{found}, not {expected}"
        time.sleep(0.02)  # watches processes of their own


def test_each_daemon_shows_how_all_of_them_see_a_worker() -> None:
    with valkey() as server, short_directory() as base, Holding().serving() as holder:
        flags, elsewhere = ("--store", server.url), {"JQD_RUNNER__WORKER_NETWORKS": "10.0.0.0/8"}
        holder.answer.set()
        with Daemon(base / "one", *flags, env=QUICK) as one:
            with Daemon(base / "two", *flags, env=QUICK | elsewhere) as two, Client(two.url) as client:
                names = [each.get("/v1/stats").json()["daemon"] for each in (one, two)]
                say(one, name="holder", url=holder.url)
                client.push("hold")
                expected = dict(zip(names, ("ok", "unreachable"), strict=True))
                wait_seen([one, two], expected)
                (row,) = one.get("/v1/workers").json()["workers"]
                (view,) = [each for each in row["seen"] if each["daemon"] == names[1]]
                assert view["since"] > row["registered_at"]
                assert (row["state"], row["why"].endswith(f" (by daemon {names[1]})")) == ("unreachable", True)
                assert row["why"].startswith(f"cannot be reached since {view['since']}: ")
                say(one, name="nobody", url="http://127.0.0.1:9/", jobs=["none"])
                waits = client.push("none")
                wait_for(lambda: "worker nobody cannot be" in (client.get(waits).note or ""), "it waits for nothing")
                assert httpx2.delete(f"{one.url}/v1/jobs/{waits}").status_code in (202, 204)
                gone = [
                    each["worker_id"] for each in one.get("/v1/workers").json()["workers"] if "none" in each["jobs"]
                ]
                assert httpx2.delete(f"{one.url}/v1/workers/{gone[0]}").status_code == 204
                forget(server)
                wait_seen([one, two], expected)  # a store that forgot is told again
            wait_seen([one], {names[0]: "ok"})  # and nothing of a daemon that is gone


@pytest.mark.long
def test_options_hold_from_the_first_push_on_also_while_the_store_is_away() -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)

        def first() -> str:
            with Daemon(base / "two", *flags, env=QUICK) as two, Client(two.url) as client:
                return client.push("long")

        with Daemon(base / "one", *flags, env=QUICK) as one:
            first()
            say(one, name="w", worker_id="u", jobs=[{"name": "long", "max_retry": 0}])
            job_ids = [first()]
            with Daemon(base / "two", *flags, env=QUICK):
                wait_for(lambda: "u" in kept(base / "two"), "what was said first is not kept")
                say(one, name="w", worker_id="v", jobs=[{"name": "long", "max_retry": 1}])
                wait_for(lambda: "v" in kept(base / "two"), "not kept")
            server.kill()
            job_ids.append(first())
            server.start()
            with Daemon(base / "two", *flags, env=QUICK) as two, Client(two.url) as client:
                assert [ingested(client, job_id).max_retry for job_id in job_ids] == [0, 1]


class Hook(BaseHTTPRequestHandler):
    """Says where it was asked."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(self.path).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hook() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def put(daemon: Daemon, url: str, **options: Any) -> int:
    body = {"lang": "http", "body": url, "options": {"style": "webhook", "format": "json", **options}}
    told = httpx2.put(f"{daemon.url}/v1/handlers/hook", json=body, timeout=10)
    assert told.status_code == 201, told.text
    version: int = told.json()["version"]
    return version


def run(client: Client, name: str = "hook") -> object:
    (ended,) = client.wait([client.push(name, {"n": 1}, keep_result=True)], 30)
    return ended.result


def test_a_handler_needs_no_worker_program_and_outlives_the_store_and_its_daemon() -> None:
    with valkey() as server, short_directory() as base, hook() as url:
        flags = ("--store", server.url)
        with Daemon(base / "two", *flags, env=QUICK) as two, Client(two.url) as client:
            with Daemon(base / "one", *flags, env=QUICK) as one:
                assert put(one, f"{url}/first", max_retry=1) == 1
                assert run(client) == "/first", "known at the other daemon"
                assert put(one, f"{url}/second") == 2
                wait_for(lambda: two.get("/v1/handlers/hook").json()["version"] == 2, "not known")
                assert run(client) == "/second"
                assert run(client, "hook@1") == "/first", "asked for by its version"
                assert put(one, f"{url}/half", weight=50) == 3
                wait_for(lambda: two.get("/v1/handlers/hook").json()["version"] == 3, "not known")
                jobs = client.wait(client.push_many([{"name": "hook", "keep_result": True}] * 200), 30)
                half = sum(job.result == "/half" for job in jobs)
                assert 60 <= half <= 140, f"{half} of 200 jobs at once went to one of two halves"
                assert put(one, f"{url}/second") == 4
                wait_for(lambda: two.get("/v1/handlers/hook").json()["version"] == 4, "not known")
                one.kill()
            forget(server)
            with Daemon(base / "one", *flags, env=QUICK) as one:
                wait_for(lambda: one.get("/v1/handlers/hook").status_code == 200, "forgotten")
                assert run(client) == "/second"
                assert httpx2.delete(f"{two.url}/v1/handlers/hook").status_code == 204
                wait_for(lambda: one.get("/v1/handlers/hook").status_code == 404, "not deleted")
                assert put(two, f"{url}/third") == 5
                waits = client.push("hook@2")
                assert run(client) == "/third"
                (row,) = [row for row in one.get("/v1/types").json()["types"] if row["name"] == "hook@2"]
                assert "version 2 of handler 'hook' is gone" in row["note"]
                assert client.get(waits).state == "waiting"


async def test_a_worker_whose_only_daemon_is_gone_stays_registered_at_the_others() -> None:
    app, ttl_s = App(), 1.0

    @app.job
    def hold() -> str:
        return "done"

    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "one", *flags, env=QUICK) as one, Daemon(base / "two", *flags, env=QUICK) as two:
            wait_for(lambda: len(two.get("/v1/daemons").json()["daemons"]) == 2, "they do not know each other")
            wait_for(
                lambda: len(say(one, name="asked", worker_id="asked", jobs=["other"])["urls"]) == 2,
                "they do not know where they are",
            )
            assert say(one, name="asked", worker_id="asked", jobs=["other"])["urls"] == [one.url, two.url]
            async with trio.open_nursery() as nursery:
                start = partial(serve, app, daemons=[one.url], ttl_s=ttl_s, signals=False)
                await nursery.start(start)
                await trio.to_thread.run_sync(wait_for, lambda: "hold" in taken(two), "it is not known")
                one.kill()
                with Client(two.url) as client:
                    await trio.sleep(2 * ttl_s + KNOWN_S)  # in which it would be forgotten
                    job_id = await trio.to_thread.run_sync(client.push, "hold")
                    await trio.to_thread.run_sync(wait_for, lambda: client.get(job_id).state == "succeeded", "not run")
                nursery.cancel_scope.cancel()


def taken(daemon: Daemon) -> list[str]:
    return [name for row in daemon.get("/v1/workers").json()["workers"] for name in row["jobs"]]


@pytest.mark.long
def test_a_ttl_is_repeated_at_any_daemon_and_runs_out_at_all() -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "one", *flags, env=QUICK) as one, Daemon(base / "two", *flags, env=QUICK) as two:
            jobs = [{"name": "hold", "max_retry": 2}]
            card = {"name": "puller", "worker_id": "0123456789abcdef", "ttl": 1.5, "jobs": jobs}
            for turn in range(4):  # at the other daemon, in the same moment
                say(one, **{**card, "worker_id": f"new{turn}"})
                asked = httpx2.post(f"{two.url}/v1/leases", json={"worker_id": f"new{turn}", "max_jobs": 1})
                assert asked.status_code == 200, asked.text
                say(one, **{**card, "worker_id": f"gone{turn}"})
                assert httpx2.delete(f"{two.url}/v1/workers/gone{turn}").status_code == 204
                assert httpx2.delete(f"{two.url}/v1/workers/new{turn}").status_code == 204
                hook = f"/v1/handlers/hook{turn}"
                httpx2.put(f"{one.url}{hook}", json={"lang": "http", "body": f"{one.url}/none"}).raise_for_status()
                assert two.get(hook).json()["version"] == 1
                assert httpx2.post(f"{two.url}/v1/jobs", json={"name": f"hook{turn}@1"}).status_code == 201
                assert httpx2.delete(f"{one.url}{hook}").status_code == 204
            assert httpx2.delete(f"{two.url}/v1/workers/nobody").status_code == 404
            say(one, **card)
            wait_known([one, two], ["0123456789abcdef"])
            with Client(two.url) as client:
                job_id = client.push("hold")
                assert ingested(client, job_id).max_retry == 2, "its options came, too"
            left = {f"{name}{turn}" for name in ("new", "gone") for turn in range(4)}
            wait_for(lambda: left <= kept(base / "one", deleted=True), "what the other said last is not kept here")
            written = one.get("/v1/stats").json()["journal"]["written"]
            for turn in range(6):  # twice as long as the ttl
                time.sleep(0.5)
                say(two if turn % 2 else one, **card)
                assert known(one) == known(two) == ["0123456789abcdef"], turn
            assert one.get("/v1/stats").json()["journal"]["written"] == written, "nothing was new"
            time.sleep(1.5)
            wait_known([one, two], [], 2 * KNOWN_S)
            say(two, **card)
            wait_known([one, two], ["0123456789abcdef"])
