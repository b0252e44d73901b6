"""OPERATIONS.md at 3 in the morning: a daemon is brought into each state, and says there what the page quotes."""

import re
import shlex
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from threading import Thread

import httpx2
import pytest
import redis
import trustme

from jqd.cli import run
from jqd.client import Client, Unavailable
from tests.crash.mounts import tmpfs, why_not
from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon
from tests.valkey import valkey

pytestmark = pytest.mark.long

WAIT_S = 30.0  # the store is looked at every 10 s
PAGE = (ROOT / "docs" / "operate" / "OPERATIONS.md").read_text()
PARTS = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
EXIT = re.compile(r"\(exit (\d)\)")


def quotes(says: str) -> re.Pattern[str]:
    """What is quoted, in its order; what stands between two quotes with `…` is on one line."""
    told = re.sub(r"` … `", "`…`", says)
    quoted = re.findall(r"`([^`]+)`(…?)", told)
    return re.compile("".join(re.escape(text) + (".*?" if on else "(?s:.*?)") for text, on in quoted))


class Night:
    """A daemon, its store, and the page."""

    def __init__(self, put: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        self._put, self._capsys = put, capsys

    def shows(self, part: str, only: str = "") -> None:
        """Every command of that part of the page says what stands there, as soon as the daemon has noticed."""
        rows = re.findall(r"^`(jqd [^`]*)`\| (.*?)\| (.*)$", PARTS[part], re.MULTILINE)
        assert len(rows) == PARTS[part].count("\n`") > 0, f"a row of {part!r} is no command with what it says"
        for command, says, _ in rows:
            if only in command:
                self._wait(command, says)

    def _wait(self, command: str, says: str) -> None:
        words = [self._put.get(word, word) for word in shlex.split(command)[1:]]
        code = int(found[1]) if (found := EXIT.search(says)) else 0
        deadline_s = time.monotonic() + WAIT_S
        while True:
            ended = run(words)
            told = self._capsys.readouterr()
            if ended == code and quotes(says).search(told.out + told.err):
                return
            assert time.monotonic() < deadline_s, (
                f"{command} ended with {ended} and said:\n{told.out}{told.err}\nnot {says}"
            )
            time.sleep(0.2)  # the daemon notices in its own time


class Broken(BaseHTTPRequestHandler):
    """A worker that fails every job."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b"KeyError: price")

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def register(daemon: str, name: str, url: str, jobtype: str) -> None:
    card = {"name": name, "style": "webhook", "url": url, "jobs": [jobtype], "max_jobs": 3}
    assert httpx2.post(f"{daemon}/v1/workers", json=card).status_code == 201


@contextmanager
def broken_worker(url: str) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        register(url, "bill", f"http://127.0.0.1:{server.server_port}/", "bill")
        yield
        server.shutdown()


def certificate(base: Path) -> tuple[str, str]:
    """Of localhost, and its key; beside them the authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(base / "authority.pem"))
    made, files = authority.issue_cert("localhost"), (str(base / "cert.pem"), str(base / "key.pem"))
    made.cert_chain_pems[0].write_to_path(files[0])
    made.private_key_pem.write_to_path(files[1])
    return files


class Clock:
    """The wall clock of the store's server, moved from outside (tests/store/skew.c)."""

    def __init__(self, base: Path) -> None:
        self._file, library = base / "skew", base / "skew.so"
        self._file.write_bytes(struct.pack("<q", 0))
        source = ROOT / "tests" / "store" / "skew.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True, timeout=WAIT_S)
        self.env = {"LD_PRELOAD": str(library), "SKEW_FILE": str(self._file)}

    def stand(self, ms: int) -> None:
        with self._file.open("r+b") as mapped:  # in place: the server has it mapped
            mapped.write(struct.pack("<q", ms))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: nothing can move the server's clock")
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_every_state_is_told_as_the_page_tells_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    at = {"JQD_RETRY__FIRST_S": "0.1", "JQD_RETRY__CAP_S": "0.1", "JQD_STORE__DEAD_JOBS_WARN": "2"}
    with short_directory() as base:
        clock, disk = Clock(base), base / "disk"
        disk.mkdir()
        with valkey(env=clock.env) as server, tmpfs(disk, "32m"):
            flags = ("--store", server.url)
            night = Night({"DIR": str(disk / "d"), "URL": server.url}, capsys)
            with Daemon(disk / "d", *flags, env=at) as daemon, Client(daemon.url) as client:
                monkeypatch.setenv("JQD_URL", daemon.url)
                client.push("mail", 1)
                night.shows("Jobs wait, and nobody takes them")
                with socket() as nobody:
                    nobody.bind(("127.0.0.1", 0))  # and nobody listens there
                    register(daemon.url, "mailer", f"http://127.0.0.1:{nobody.getsockname()[1]}/", "letter")
                    client.push("letter", 1)
                    night.shows("All workers of a type are away")
                with broken_worker(daemon.url):
                    client.wait([client.push("bill", {"n": 1}, max_retry=1) for _ in range(3)], timeout=WAIT_S)
                    night.shows("A worker fails every job")
                client.set_constraint("thrifty", match='job.name == "bill"', rate={"limit": 9}, cost="job.argument.n")
                client.push("bill", {"n": "much"})
                night.shows("A constraint fails on jobs")
                client.delete_constraint("thrifty")
                memory = redis.Redis.from_url(server.url)
                clock.stand(3_600_000)
                # What is used goes up and down by some KB by itself: the push must not find room by chance.
                memory.config_set("maxmemory", memory.info("memory")["used_memory"] - 100_000)
                client.push("mail", "x" * 1000)
                night.shows("The store's memory is full")
                night.shows("A clock has jumped")
                memory.config_set("maxmemory", 0)
                clock.stand(0)
                fill = disk / "fill"
                with suppress(OSError):
                    fill.write_bytes(bytes(64 << 20))
                with pytest.raises(Unavailable, match="507"):
                    client.push("mail", "x" * 100_000)
                night.shows("The disk is full")
                fill.unlink()
                night.shows("Jobs wait, and nobody takes them", only="status")
                server.kill()
                night.shows("The store is away")
                server.start()
                client.push("mail", "damage me")
                client.push("mail", 2)  # a bad last frame would be taken for a write that the crash cut off
                daemon.kill()
            night.shows("No daemon answers")
            (segment,) = (each for each in (disk / "d" / "journal").glob("*.jqd") if b"damage me" in each.read_bytes())
            segment.write_bytes(segment.read_bytes().replace(b"damage me", b"damaged !"))
            cert, key = certificate(base)
            said = {"JQD_PRESSURE__WAITING_JOBS_MAX": "1", "JQD_HTTP__TLS_CERT": cert, "JQD_HTTP__TLS_KEY": key}
            with Daemon(disk / "d", *flags, env=said) as daemon:
                monkeypatch.setenv("JQD_URL", daemon.url.replace("127.0.0.1", "localhost"))
                monkeypatch.setenv("SSL_CERT_FILE", str(base / "authority.pem"))
                night.shows("The journal is damaged")
                night.shows("Pushes are put off")
                Path(key).write_text("half a renewal")
                night.shows("A renewed certificate is not used")
                assert daemon.stop() == 0
            directory = ["--data-dir", str(disk / "d")]
            assert run(["journal", "repair", *directory]) == 0
            assert run(["journal", "verify", *directory]) == 0
            assert "whole" in capsys.readouterr().out
