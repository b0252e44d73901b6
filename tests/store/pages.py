"""Our scripts with pages so short that a few jobs fill several: what takes thousands of jobs takes five."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from jqd.store import scripts
from jqd.store.keys import Keys

LUA = Path(scripts.__file__).parent / "lua"
READY_MAX, PAGE_MAX = 1, 3


@contextmanager
def short_pages(directory: Path, **constants: str) -> Iterator[None]:
    """Stores opened meanwhile use pages of three, from the second job on. `constants`: others that are exchanged."""
    copytree(LUA, directory / "lua")
    for name, value in {"READY_MAX": READY_MAX, "PAGE_MAX": PAGE_MAX, **constants}.items():
        places = 0
        for file in (directory / "lua" / "include").glob("*.lua"):
            text, found = re.subn(rf"^local {name} = .*$", f"local {name} = {value}", file.read_text(), flags=re.M)
            file.write_text(text)
            places += found
        assert places == 1, name
    short = scripts.load_scripts(directory / "lua")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "_shipped", lambda: short)
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
