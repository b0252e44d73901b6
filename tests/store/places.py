"""Where jobs lie in a real store; and our functions with pages so short that a few jobs fill several of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from jqd.store import connect, doctor, functions
from jqd.store.keys import Keys
from jqd.testing import store as memory
from tests.harness.recount import miscounted
from tests.store.counting import mirror

LUA = Path(functions.__file__).parent / "lua"
READY_MAX, PAGE_MAX = 1, 3


@contextmanager
def short_pages(directory: Path, **constants: str) -> Iterator[None]:
    """Stores opened meanwhile use pages of three, from the second job on. `constants`: others that are exchanged."""
    copytree(LUA, directory / "lua")
    for name, value in {"READY_MAX": READY_MAX, "PAGE_MAX": PAGE_MAX, **constants}.items():
        places = 0
        for file in (directory / "lua" / "shared").glob("*.lua"):
            text, found = re.subn(
                rf"^( *(?:local |[A-Z]\w*\.)){name} = .*$", rf"\g<1>{name} = {value}", file.read_text(), flags=re.M
            )
            file.write_text(text)
            places += found
        assert places == 1, name
    short = functions.read_library(directory / "lua")
    with pytest.MonkeyPatch.context() as patch:
        for module in (functions, connect, doctor):
            patch.setattr(module, "shipped", lambda: short)
        patch.setattr(memory, "LIBRARY", short)
        yield


def paged(client: Any, keys: Keys, jobtype: str) -> list[tuple[bytes, float]]:
    """What lies in the pages of a jobtype, in order, with its priority; each page is looked at."""
    pages = client.zrange(f"{keys['backlog']}:{jobtype}", 0, -1, withscores=True)
    found: list[tuple[bytes, float]] = []
    for at, (first, priority) in enumerate(pages):
        ids = client.lrange(f"{keys['page']}:{first.decode()}:{jobtype}", 0, -1)
        behind = pages[at + 1][0] if at + 1 < len(pages) and pages[at + 1][1] == priority else b"\xff"
        assert ids, "a page that is empty is no page"
        assert ids == sorted(set(ids))
        assert first <= ids[0]
        assert ids[-1] < behind, "it reaches into the next one"
        found += [(job_id, priority) for job_id in ids]
    count = client.hget(keys["paged"], jobtype)
    assert (count is None) == (not found)
    assert int(count or 0) == len(found)
    return found


def check_places(client: Any, keys: Keys) -> None:
    """Every job lies in exactly one place, nothing else lies anywhere, `types` says what waits, `heads` what is next.

    Nothing else, but what is noted as held before it came: that has no row, and lies in the hand that the note names.
    And every job is counted.
    """
    ready = {
        jobtype: client.zrange(keys.ready(jobtype), 0, -1, withscores=True) for jobtype in _ends(client, keys, "ready")
    }
    for jobtype in _ends(client, keys, "backlog"):
        ready[jobtype] = ready.get(jobtype, []) + paged(client, keys, jobtype)
    assert set(_ends(client, keys, "backlog")) == {jobtype.decode() for jobtype in client.hkeys(keys["paged"])}
    pages = sum(client.zcard(f"{keys['backlog']}:{jobtype}") for jobtype in ready)
    assert len(_ends(client, keys, "page")) == pages, "a page that nobody knows of"
    lists = [client.zrange(keys[name], 0, -1) for name in ("later", "ended", "dead")]
    lists += [client.zrange(keys.held(sysid), 0, -1) for sysid in _ends(client, keys, "held")]
    lists += [[job_id for job_id, _ in jobs] for jobs in ready.values()]
    lie = [job_id for ids in lists for job_id in ids]
    about = {job_id: (b" " + row).partition(b" q")[0] for job_id, row in client.hgetall(keys["about"]).items()}
    early = {job_id for job_id, record in about.items() if record.endswith(b" ?")}
    assert int(about.pop(b"?", b"0")) == len(early)
    assert sorted(lie) == sorted([*client.hkeys(keys["jobs"]), *early])
    hands = {
        job_id: b" f%d o%s" % (fence, sysid.encode())
        for sysid in _ends(client, keys, "held")
        for job_id, fence in client.zrange(keys.held(sysid), 0, -1, withscores=True)
    }
    assert hands == {job_id: b" ".join(record.split(b" ")[:3]) for job_id, record in about.items() if record}
    best = {jobtype.encode(): min(priority for _, priority in jobs) for jobtype, jobs in ready.items()}
    assert dict(client.zrange(keys["types"], 0, -1, withscores=True)) == best
    first: dict[tuple[str, float], bytes] = {}
    for jobtype, jobs in ready.items():
        for job_id, priority in jobs:
            first[jobtype, priority] = min(job_id, first.get((jobtype, priority), job_id))
    heads = {job_id + b":" + jobtype.encode(): priority for (jobtype, priority), job_id in first.items()}
    assert dict(client.zrange(keys["index"], 0, -1, withscores=True)) == heads
    assert miscounted(mirror(client, keys), keys) is None


def _ends(client: Any, keys: Keys, stem: str) -> list[str]:
    """What follows the stem in each of those keys."""
    begin = f"{keys[stem]}:"
    found = client.scan_iter(f"{begin}*", count=1_000)
    return sorted({key.decode().removeprefix(begin) for key in found})
