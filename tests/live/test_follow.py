"""One job is followed at a daemon that neither took nor runs it; a browser's worth of followers; who reads nothing."""

import json
import socket
import subprocess
import sys
import threading

import httpx2

from jqd.client import Client, JobEvent
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Process, pair, wait_for
from tests.stalls import unstalled

FOLLOWERS = 1_000


class Follower(threading.Thread):
    """Hears all that happens to a job."""

    def __init__(self, url: str, job_id: str) -> None:
        super().__init__(daemon=True)
        self.url, self.job_id = url, job_id
        self.heard: list[JobEvent] = []
        self.start()

    def run(self) -> None:
        with Client(self.url) as client:
            for event in client.events(self.job_id):
                self.heard.append(event)

    def lines(self) -> list[str]:
        return [line for event in self.heard if event.kind == "log" for line in event.data["lines"]]

    def states(self) -> list[str]:
        return [event.data["state"] for event in self.heard if event.kind == "state"]


def test_a_job_is_followed_at_the_other_daemon_from_its_first_line_to_its_end() -> None:
    with pair(QUICK) as here, Client(here.one.url) as client:
        one, two, base = here.one, here.two, here.base
        args = ["worker", "tests.live.teller", "--bind", "127.0.0.1:0", "--daemon", one.url]
        with Process(args, base / "teller.log"):
            one.wait_worker("tell")
            job_id = client.push("tell", {"gate": str(base / "gate")}, keep_result=True)
            follower = Follower(two.url, job_id)
            wait_for(lambda: any("line 0" in line for line in follower.lines()), "no line of a running job")
            wait_for(lambda: any(event.kind == "progress" for event in follower.heard), "no progress")
            assert "attempt 1 line 0" in client.log(job_id)
            (base / "gate.1").touch()
            wait_for(lambda: any("attempt 2 line" in line for line in follower.lines()), "no line of the next attempt")
            (base / "gate.2").touch()
            follower.join(30)
            lines = follower.lines()
            first = [line for line in lines if line.startswith("attempt 1 line")]
            second = [line for line in lines if line.startswith("attempt 2 line")]
            assert first == [f"attempt 1 line {number}" for number in range(len(first))], "each once, in order"
            assert second == [f"attempt 2 line {number}" for number in range(len(second))]
            assert lines[-1] == "attempt 2 is over"
            assert "attempt 1 is over" in lines
            assert follower.states()[-1] == "succeeded"
            assert follower.heard[-1] == JobEvent("end", {"reason": "ended", "state": "succeeded", "reconnect": False})
            assert client.log(job_id).endswith("attempt 2 is over")
            command = [sys.executable, "-m", "jqd", "logs", job_id, "--follow", "--url", two.url]
            told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (told.returncode, told.stdout.splitlines()[-1]) == (0, "attempt 2 is over")
            assert "succeeded" in told.stderr
            command = [sys.executable, "-m", "jqd", "logs", "nothing", "-f", "--url", two.url]
            assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 3


def test_a_thousand_followers_hold_up_nobody_and_all_hear_of_the_end_of_the_daemon() -> None:
    with short_directory() as base, Daemon(base / "d", guarded=True) as daemon, Client(daemon.url) as client:
        job_id = client.push("nobody", None)
        host, port = daemon.url.removeprefix("http://").split(":")
        asked = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode()
        followers = []
        for _ in range(FOLLOWERS):
            follower = socket.create_connection((host, int(port)), timeout=60)
            follower.sendall(asked)
            followers.append(follower)
        heads = [_until(follower, b"event: state") for follower in followers]
        assert all(b"200 OK" in head for head in heads)
        with unstalled(daemon.steps):
            client.cancel(job_id)
            ends = [_until(follower, b'"reason":"ended"') for follower in followers]
        assert all(b'"state":"cancelled"' in end for end in ends)
        for follower in followers:
            follower.close()
        other = client.push("nobody", None)
        with httpx2.stream("GET", f"{daemon.url}/v1/jobs/{other}/events", timeout=60) as stream:
            told = stream.iter_lines()
            assert next(line for line in told if line.startswith("data: "))
            daemon.child.terminate()
            rest = [json.loads(line.removeprefix("data: ")) for line in told if line.startswith("data: ")]
        assert rest[-1] == {"reason": "draining", "reconnect": True}


def _until(stream: socket.socket, part: bytes) -> bytes:
    data = b""
    while part not in data:
        piece = stream.recv(65_536)
        assert piece, f"it ended: {data[-200:]!r}"
        data += piece
    return data
