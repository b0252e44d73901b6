"""HTTP.md, DIALECTS.md and FLOWS.md of docs/use are true: each request they show is made, and answered as they say.

In an answer `…` stands for anything, and ids and dates are any. Ids, ports and what is set up are put in their place.
"""

import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, Process

PAGES = ("HTTP.md", "DIALECTS.md", "FLOWS.md")
TOLD = "curl() { command curl -w '\\n%{http_code}' \"$@\"; }; J='content-type: application/json'; "
JOB_ID = re.compile(r"01MCC5RM\d{18}")
ANY = re.compile(r"01MCC5RM\w*|\b8f14e45fc\w*|\d{4}-\d\d-\d\dT[\d:.]+Z|…")  # of what the page shows
WAIT_S = 40.0
OWN = re.compile(r"```python\n# texts\.py\n(.*?)```", re.DOTALL)
"""The jobs of a page that has its own; the others use these:"""
PRELUDE = "import jqd\napp = jqd.App()\n@app.job\ndef mail(argument: object, /) -> str:\n"
SENT = "    return f\"sent to {argument['to'] if isinstance(argument, dict) and 'to' in argument else argument}\"\n"


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command, and the lines that it is answered with; those that only say something are passed over."""
    command, answer = "", list[str]()
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("#"):
            answer.append(line[1:].removeprefix(" "))
        else:
            if "curl" in command:
                yield command, answer
            command, answer = line, []
    if "curl" in command:
        yield command, answer


def pattern_of(shown: str) -> str:
    """What an answer must look like, blanks apart."""
    bare, at, parts = "".join(shown.split()), 0, list[str]()
    for match in ANY.finditer(bare):
        parts += re.escape(bare[at : match.start()]), ".*"
        at = match.end()
    return "".join([*parts, re.escape(bare[at:])])


class Reader:
    """Somebody who types what the page says."""

    def __init__(self, daemon: Daemon, port: str) -> None:
        self.daemon, self.port = daemon, port
        self.job_id = ""

    def follow(self, command: str, shown: list[str]) -> None:
        here = JOB_ID.sub(self.job_id, command).replace("localhost:7420", self.daemon.bind)
        here = here.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        told = subprocess.run(["bash", "-c", TOLD + here], capture_output=True, text=True, timeout=WAIT_S, check=True)
        body, _, status = told.stdout.rpartition("\n")
        if "/v1/events" in command:
            self.listened(body, shown)
            return
        answers = [line for line in shown if re.match(r"\d{3} ", line)]
        for line in answers:  # each request with an answer has one
            expected, _, value = line.partition(" ")
            value = value.replace("127.0.0.1:7420", self.daemon.bind).replace(
                "127.0.0.1:8000", f"127.0.0.1:{self.port}"
            )
            assert status == expected, f"{command}: {told.stdout}"
            assert re.fullmatch(pattern_of(value), "".join(body.split())), f"{command}:\n{body}\nis not\n{value}"
        assert answers, f"what is {command} answered with?"
        if found := re.search(r'"job_id":"([0-9A-Z]{26})"', body):
            self.job_id = found[1]

    def listened(self, body: str, shown: list[str]) -> None:
        """Of a stream each line that is shown comes, in that order, others between."""
        left = iter(body.splitlines())
        for line in shown:
            pattern = pattern_of(line)
            assert any(re.fullmatch(pattern, "".join(one.split())) for one in left), f"{line} is not in\n{body}"

    def tidy(self) -> None:
        """Take back what a block registered: nothing listens where the page says that its workers are."""
        for path in ("/v1/handlers/mail", "/v1/schedules/nightly"):
            httpx2.delete(self.daemon.url + path, timeout=10)
        for worker in self.daemon.get("/v1/workers").json()["workers"]:
            if worker["name"] in ("mailer", "greeter"):
                httpx2.delete(f"{self.daemon.url}/v1/workers/{worker['worker_id']}", timeout=10)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The port of a server that takes no jobs: where the page says that its workers are."""

    class Full(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: it only stands there."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Full) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield str(server.server_port)
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", PAGES)
def test_each_request_of_the_pages_is_answered_as_they_say(elsewhere: str, name: str) -> None:
    page = (ROOT / "docs" / "use" / name).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    env = {"JQD_API__MASTER_KEY": "secret"}
    with short_directory() as base, Daemon(base / "d", env=env) as daemon:
        own = OWN.search(page)
        code = own[1] if own else PRELUDE + SENT
        (base / "texts.py").write_text(code)
        worker = Process(["worker", "texts:app", "--daemon", daemon.url], base / "w.log", cwd=base)
        with worker:
            daemon.wait_worker(re.findall(r"^def (\w+)", code, re.MULTILINE)[-1])
            reader, asked = Reader(daemon, elsewhere), 0
            for block in blocks:
                pusher = threading.Timer(1.5, httpx2.post, [f"{daemon.url}/v1/jobs"], {"json": {"name": "mail"}})
                if "/v1/events" in block:
                    pusher.start()
                for command, shown in steps(block):
                    reader.follow(command, shown)
                    asked += 1
                pusher.cancel()
                reader.tidy()
            assert asked == len(re.findall(r"^(?:printf .*\| )?curl ", "".join(blocks), re.MULTILINE))
            assert worker.stop() == 0
        assert daemon.stop() == 0
