"""Code of a worker that is root has a user of its own."""

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from jqd.code.launch import PROCESSES_MAX
from jqd.code.sandbox import expect_owner, owner_of
from jqd.domain.errors import ConfigError
from tests.code.conftest import handler, value

NOBODY = "nobody"
PYTHON = "/usr/bin/python3"
SEEN = """
import os, resource
open("own", "w").close()
try:
    seen = open(f"/proc/{os.getppid()}/environ").read()
except OSError:
    seen = ""
return [os.getuid(), os.getgid(), os.getgroups(), resource.getrlimit(resource.RLIMIT_NPROC)[0], seen]
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as somebody else")


@needs_root
@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no interpreter that every user may start")
async def test_code_of_a_worker_of_root_is_another_users(bench: Any, tmp_path: Path) -> None:
    for above in tmp_path.parents:
        if above.stat().st_uid == 0 and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    who = pwd.getpwnam(NOBODY)
    async with bench(user=NOBODY, python=PYTHON) as at:
        told = value(await at.one(handler("python", SEEN)))
        assert told == [who.pw_uid, who.pw_gid, [], PROCESSES_MAX, ""]
        assert value(await at.one(handler("sh", "touch own; id -u"))) == str(who.pw_uid)
        assert (await at.one(handler("sh", "sleep 60"), timeout=0.2)).status == 504, "it is killed as ever"


def test_root_says_whose_its_code_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    owner_of.cache_clear()
    with pytest.raises(ConfigError, match="Give the code a user with --user NAME"):
        expect_owner("")
    expect_owner("root")
    expect_owner(NOBODY)
    with pytest.raises(ConfigError, match="no such user"):
        owner_of("nobody of that name")


def test_nobody_else_runs_code_as_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    owner_of.cache_clear()
    expect_owner("")
    with pytest.raises(ConfigError, match="start it as that user"):
        expect_owner(NOBODY)
    owner_of.cache_clear()
