"""The client in processes of its own: forks, a Ctrl-C while it waits, the variables that name the daemon."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import msgspec
import pytest

from jqd.client import URL_DEFAULT, Client, WrongUrl

PATIENCE_S = 30.0

# Every process pushes with a client that was used before the fork, and checks that each answer is its own.
FORKS = """
import os, sys
from jqd.client import Client
from jqd import App

client, app = Client(sys.argv[1]), App(sys.argv[1])
job = app.job("job")(lambda text, /: None)
assert client.push("n", "parent") == "parent"
assert job.push("parent").job_id == "parent"
children, (wait, go) = [], os.pipe()
for child in range(4):
    pid = os.fork()
    if pid == 0:
        wrong = 1
        try:
            os.close(go)
            os.read(wait, 1)  # so that all begin at once
            for number in range(20):
                mine = f"{child}-{number}"
                assert client.push("n", mine) == mine
                assert job.push(mine).job_id == mine
            wrong = 0
        finally:
            os._exit(wrong)
    children.append(pid)
os.close(go)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
assert client.push("n", "again") == "again"
sys.exit(any(codes))
"""
WAITS = """
import sys
from jqd.client import Client
print("ready", flush=True)
Client(sys.argv[1]).wait(["a", "b"])
"""


class Echo(BaseHTTPRequestHandler):
    """Answers a push with its argument as the id; a question for a job hangs until the end of the test."""

    protocol_version = "HTTP/1.1"
    asked = Event()
    go = Event()

    def do_POST(self) -> None:
        pushed = msgspec.msgpack.decode(self.rfile.read(int(self.headers["content-length"])))
        body = msgspec.msgpack.encode({"job_id": pushed["argument"], "ack": "fsync"})
        self.send_response(201)
        self.send_header("content-type", "application/msgpack")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        Echo.asked.set()
        Echo.go.wait(PATIENCE_S)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        return


@pytest.fixture
def url() -> Iterator[str]:
    Echo.asked.clear()
    Echo.go.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Echo.go.set()
        server.shutdown()
        thread.join()


def test_four_children_of_a_fork_read_each_their_own_answers(url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, url], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_ctrl_c_while_it_waits_ends_the_process(url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert Echo.asked.wait(PATIENCE_S)
        child.send_signal(signal.SIGINT)
        # Its requests hang for longer than this.
        _, told = child.communicate(timeout=PATIENCE_S / 3)
        assert b"KeyboardInterrupt" in told
        assert child.returncode in (-signal.SIGINT, 130, 1)


def test_the_environment_names_the_daemon_and_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JQD_URL", raising=False)
    assert Client().url == URL_DEFAULT
    monkeypatch.setenv("JQD_URL", "http://127.0.0.1:7499")
    monkeypatch.setenv("JQD_TOKEN", "secret")
    assert Client().url == "http://127.0.0.1:7499"
    assert Client()._http._headers["authorization"] == "Bearer secret"
    elsewhere = Client("http://127.0.0.1:1")
    assert elsewhere.url == "http://127.0.0.1:1"
    assert "authorization" not in elsewhere._http._headers, "a token is for the daemon it is said for"
    monkeypatch.setenv("JQD_URL", "nonsense")
    with pytest.raises(WrongUrl, match="JQD_URL: 'nonsense' is no daemon's URL"):
        Client()


HELD = """
import os, sys, threading
from jqd.client import Client

buffer = Client(sys.argv[1]).buffer(linger="1h")
ref = buffer.push("n", "parent")
held, go = threading.Event(), threading.Event()

def hold():
    with buffer._changed:
        held.set()
        go.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
if os.fork() == 0:
    try:
        ref.confirm(9.0)
    except Exception as error:
        print(error, flush=True)
    buffer.push("n", "child")
    os._exit(0)
_, status = os.wait()
os._exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_of_a_fork_waits_for_no_lock_that_a_thread_of_its_parent_holds(url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HELD, url], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "waited in the buffer of the process that forked; only that one knows of it" in ended.stdout
