"""A pusher with several URLs, whose first daemon takes a push and dies before it answers: the push counts once."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from jqd import App
from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.client import AsyncClient, Client, Unavailable, Unreachable
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, ingested, pair, wait_for
from tests.live.test_tokens import jqd
from tests.valkey import valkey

ANSWER_S = 30.0
PUSHES = 5


@contextmanager
def cut(daemon: Daemon, then: Callable[[], object] = bytes) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a door to `daemon` that passes requests on, calls `then` and hangs up instead of answering; and what
    it heard."""
    host, _, port = daemon.bind.rpartition(":")
    answers: list[bytes] = []
    stop = threading.Event()

    def run(listener: socket.socket) -> None:
        while not stop.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            with client, socket.create_connection((host, int(port)), ANSWER_S) as onward:
                client.settimeout(ANSWER_S)
                request = client.recv(1 << 16)
                while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < length(request):
                    request += client.recv(1 << 16)
                onward.sendall(request)
                answers.append(onward.recv(1 << 16))
                then()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=run, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", answers
        finally:
            stop.set()
            thread.join(ANSWER_S)


def length(request: bytes) -> int:
    head = request.partition(b"\r\n\r\n")[0].lower()
    return int(head.partition(b"content-length:")[2].split(b"\r\n")[0])


def waiting(daemon: Daemon, name: str) -> int:
    return sum(row["waiting"] for row in daemon.get("/v1/types").json()["types"] if row["name"] == name)


def test_a_push_whose_answer_was_lost_counts_once_at_the_next_daemon(tmp_path: Path) -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "one", *flags) as one, Daemon(base / "two", *flags) as two:
            ids = []
            for number in range(PUSHES):
                with cut(one) as (door, answers), Client(f"{door},{two.url}") as client:
                    ids.append(client.push("single", number))
                    assert client.url == two.url
                    assert b" 201 " in answers[0], "the first has taken it, and nobody heard of it"
            with cut(one) as (door, answers), Client([door, two.url]) as client:
                many = client.push_many([{"name": "many", "argument": number} for number in range(PUSHES)])
                assert b" 201 " in answers[0]
            assert len(set(ids)) == len(set(many)) == PUSHES
            for daemon in (one, two):  # what each has taken before is in the store, too, when this is
                with Client(daemon.url) as client:
                    client.push("last", job_id=f"last at {daemon.bind}", ack="store")
            assert (waiting(two, "single"), waiting(two, "many")) == (PUSHES, PUSHES)
            app = App(f"{one.url},{two.url}")

            @app.job
            def late(number: int) -> None: ...

            assert not late.push(1).duplicate
            one.kill()
            assert ingested(app.client, late.push(2).job_id).name == "late"
            assert app.client.url == two.url
            app.client.close()
            assert waiting(two, "late") >= 1


@pytest.mark.long
def test_while_the_store_is_away_a_push_goes_to_one_daemon_without_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    """Not where one may have taken it: the door brings its request to the first, and no answer back. The error says so,
    lest the program that pushed it does so again, under a new id."""
    with pair(QUICK) as (server, one, two, _):
        both = f"{one.url},{two.url}"
        with (
            cut(one, server.kill) as (door, answers),
            Client([door, two.url]) as client,
            pytest.raises(Unreachable, match="may have arrived") as caught,
        ):
            client.push("unsure")
        assert b" 201 " in answers[0]
        assert caught.value.sent
        with Client(both) as client:
            ids = [client.push("alone", n) for n in range(PUSHES)] + client.push_many([{"name": "alone"}] * PUSHES)
        ids += [jqd("push", "alone", "1", "--url", both), trio.run(push_async, both)]
        with cut(one) as (door, answers):
            assert run(["push", "alone", "1", "--url", f"{door},{two.url}"]) == Exit.UNREACHABLE
        assert b" 503 " in answers[0]
        assert "may have arrived" in capsys.readouterr().err
        with Client(both) as client, pytest.raises(Unavailable, match="only the store knows whose a job_id is"):
            client.push("alone", job_id="mine")
        server.start()
        with Client(both) as client:
            for job_id in ids:
                assert ingested(client, job_id).name == "alone"
        assert waiting(two, "alone") == len(set(ids)) == 2 * PUSHES + 2
        wait_for(lambda: waiting(two, "unsure") == 1, "its journal is read later than the other's")


async def push_async(urls: str) -> str:
    async with AsyncClient(urls) as client:
        return await client.push("alone")
