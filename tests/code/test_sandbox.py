"""Code in bubblewrap, where that works: it sees neither the machine nor its neighbours."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from jqd.code import sandbox
from jqd.code.config import CodeConfig, Limits
from jqd.code.sandbox import expect_sandbox
from jqd.domain.errors import ConfigError
from tests.code.conftest import handler, job, value


def why_not() -> str:
    try:
        expect_sandbox(CodeConfig(daemons=[], sandbox="bwrap"))
    except ConfigError as error:
        return str(error)
    return ""


needs_bwrap = pytest.mark.skipif(bool(why_not()), reason=why_not())

SEEN = """
import os, socket
with open("kept", "w") as file:
    file.write("mine")
pids = [name for name in os.listdir("/proc") if name.isdigit()]
try:
    socket.create_connection(("127.0.0.1", argument[0]), 2)
    net = "reached"
except OSError as error:
    net = "not reached"
return [len(pids), os.path.exists(argument[1]), os.path.exists("/etc/shadow"), net, os.listdir()]
"""


def test_certificates_are_seen_and_no_private_keys_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_knows", lambda option: True)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    command = sandbox.sandboxed(["true"], CodeConfig(daemons=[], sandbox="bwrap"))
    assert {"/etc/ssl/cert.pem", "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs"} <= {*command}
    assert {"/etc/ssl", "/etc/pki", "/etc/pki/tls", "/etc/ssl/private"}.isdisjoint(command)


@pytest.mark.parametrize(("most", "asks"), [("0\n", False), ("63356\n", True), (None, False)])
def test_a_root_worker_needs_no_user_namespaces_where_there_are_none(
    most: str | None, asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to disable them bubblewrap ends, as it has to make one first."""
    if most is not None:
        (tmp_path / "most").write_text(most)
    monkeypatch.setattr(sandbox, "NAMESPACES_MAX", tmp_path / "most")
    monkeypatch.setattr(sandbox, "_knows", lambda option: True)
    assert ("--unshare-user" in sandbox.sandboxed(["true"], CodeConfig(daemons=[], sandbox="bwrap"))) is asks


@needs_bwrap
async def test_what_it_sees_is_its_own(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("secret") / "key"
    secret.write_text("key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = [server.getsockname()[1], str(secret)]
        async with bench(sandbox="bwrap") as at:
            told = value(await at.one(handler("python", SEEN, tenant="acme"), asked))
            assert told[0] <= 3, "no process but its own"
            assert told[1:4] == [False, False, "not reached"]
            assert told[4] == ["kept"]
        async with bench(sandbox="bwrap", network=True) as at:
            assert value(await at.one(handler("python", SEEN, tenant="acme"), asked))[3] == "reached"


@needs_bwrap
@pytest.mark.parametrize(
    ("lang", "body"),
    [("python", "return argument"), ("node", "return argument"), ("sh", "read -r line; echo 200 $line")],
)
async def test_all_languages_run_in_it_and_end_with_it(bench: Any, lang: str, body: str) -> None:
    async with bench(sandbox="bwrap") as at:
        told = await at.run(handler(lang, body), job("x", job_id="x"))
        assert value(told["x"]) == "x"
        slow = {"python": "import time; time.sleep(60)", "node": "for (;;);", "sh": "setsid sleep 60 & sleep 60"}[lang]
        assert (await at.one(handler(lang, slow), timeout=0.5)).status == 504


FULL = """
import errno, multiprocessing
def write(path):
    try:
        with open(path, "wb") as file:
            for _ in range(2 * argument):
                file.write(bytes(1 << 20))
        return "written"
    except OSError as error:
        return errno.errorcode[error.errno]
multiprocessing.Lock()
with open("/dev/null", "w") as file:
    file.write("fine")
return [write(path) for path in ("/tmp/a", "/dev/shm/a", "/a", "/dev/a", "/usr/a")]
"""
NESTED = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
return [libc.unshare(0x10000000), errno.errorcode[ctypes.get_errno()]]  # CLONE_NEWUSER
"""


@needs_bwrap
async def test_what_it_writes_is_memory_and_bounded_and_the_rest_is_read_only(bench: Any, tmp_path: Path) -> None:
    async with bench(Limits(memory_mib=100), sandbox="bwrap") as at:
        told = value(await at.one(handler("python", FULL, tenant="acme"), 100))
        assert told == ["ENOSPC", "ENOSPC", "EROFS", "EROFS", "EROFS"]
        seen = "import os; return [os.getcwd(), os.environ['HOME'], os.environ['TMPDIR']]"
        assert value(await at.one(handler("python", seen, tenant="acme"))) == ["/tmp"] * 3
        assert not [*tmp_path.glob("*/*")], "nothing is on the disk"  # noqa: ASYNC240 - of a few files


@needs_bwrap
async def test_it_mounts_no_memory_in_a_namespace_of_its_own(bench: Any) -> None:
    async with bench(sandbox="bwrap") as at:
        assert value(await at.one(handler("python", NESTED))) == [-1, "ENOSPC"]


@needs_bwrap
async def test_tenants_never_meet(bench: Any) -> None:
    body = "import os\nwas = os.path.exists('left'); open('left', 'w').close(); return [was, os.stat('.').st_dev]"
    async with bench(sandbox="bwrap") as at:
        one, again, other = [
            value(await at.one(handler("python", body, eid="same", tenant=tenant)))
            for tenant in ("acme", "acme", "umbrella")
        ]
        assert (one[0], again[0], other[0]) == (False, True, False)
        assert one[1] == again[1] != other[1]


@needs_bwrap
def test_an_old_one_that_bounds_no_memory_is_told_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_sandbox(CodeConfig(daemons=[], sandbox="bwrap"))
    assert "memory_unbounded" not in capsys.readouterr().out
    for missing in ("--size", "--disable-userns"):
        monkeypatch.setattr(sandbox, "_knows", missing.__ne__)
        expect_sandbox(CodeConfig(daemons=[], sandbox="bwrap"))
        told = capsys.readouterr().out
        assert "memory_unbounded" in told
        assert f"has no {missing}:" in told


def test_one_that_does_not_work_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("bwrap") is None
    with pytest.raises(ConfigError, match=r"--sandbox bwrap does not work here: .*\. Install bubblewrap, and allow"):
        expect_sandbox(CodeConfig(daemons=[], sandbox="bwrap"))
    expect_sandbox(CodeConfig(daemons=[]))


def test_where_its_user_may_not_enter_a_folder_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "bwrap: Can't find source path /root/.pyenv/versions/3.13: Permission denied"
    (tmp_path / "bwrap").write_text(f'#!/bin/sh\necho "{message}" >&2\nexit 1\n')
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sandbox, "_knows", lambda _: True)
    with pytest.raises(ConfigError) as found:
        expect_sandbox(CodeConfig(daemons=[], sandbox="bwrap"))
    assert f"{message}. The user that runs the code must be able to read this path" in str(found.value)
    assert "Install bubblewrap" not in str(found.value)
