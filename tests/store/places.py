"""Where jobs lie in a real store; and our functions with bounds so small that a few jobs meet them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from jqd.store import connect, doctor, functions
from jqd.store.keys import STEMS, Keys
from jqd.testing import store as memory
from jqd.testing.keyspace import Keyspace, SortedSet
from tests.harness.recount import miscounted
from tests.store.counting import mirror
from tests.store.indexes import check_indexes

LUA = Path(functions.__file__).parent / "lua"
SMALL = {"NEAR": "1", "SWEPT": "3", "CHUNK": "2", "LINES": "2", "QUEUES": "99"}


@contextmanager
def short_lines(directory: Path, **constants: str) -> Iterator[None]:
    """Stores opened meanwhile leave the hint of each job that is not at an end of its line. `constants`: others that
    are exchanged."""
    copytree(LUA, directory / "lua")
    for name, value in (SMALL | constants).items():
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


def all_of(client: Any, keys: Keys) -> Keyspace:
    """All keys of a real server that lines have to do with, as they are now."""
    copy = mirror(client, keys)
    for name in ("line", "turns", "levels", "heads", "aside", "held", "stale", "parked", "spent", "due", "again"):
        begin = keys[name] + (":" if name in STEMS else "")
        for key in client.scan_iter(f"{begin}*", count=1_000) if name in STEMS else [begin.encode()]:
            match client.type(key):
                case b"list":
                    copy.keys[key] = client.lrange(key, 0, -1)
                case b"hash":
                    copy.keys[key] = client.hgetall(key)
                case b"zset":
                    copy.keys[key] = rows = SortedSet()
                    for member, score in client.zrange(key, 0, -1, withscores=True):
                        rows.put(member, score)
    return copy


def check_places(client: Any, keys: Keys) -> None:
    """Every job lies in one place at most and waits if in none, lines have what waits, and every job is counted.

    Nothing else lies anywhere, but what is noted as held before it came: that has no row, and lies in the hand that the
    note names."""
    lists = [client.zrange(keys[name], 0, -1) for name in ("later", "ended", "dead")]
    lists += [client.zrange(keys.held(sysid), 0, -1) for sysid in _ends(client, keys, "held")]
    lie = [job_id for ids in lists for job_id in ids]
    about = {job_id: (b" " + row).partition(b" q")[0] for job_id, row in client.hgetall(keys["about"]).items()}
    early = {job_id for job_id, record in about.items() if record.endswith(b" ?")}
    assert int(about.pop(b"?", b"0")) == len(early)
    assert len(lie) == len(set(lie)), "it lies in two places"
    assert set(lie) <= {*client.hkeys(keys["jobs"]), *early}
    hands = {
        job_id: b" f%d o%s" % (fence, sysid.encode())
        for sysid in _ends(client, keys, "held")
        for job_id, fence in client.zrange(keys.held(sysid), 0, -1, withscores=True)
    }
    assert hands == {job_id: b" ".join(record.split(b" ")[:3]) for job_id, record in about.items() if record}
    check_indexes(all_of(client, keys), keys)
    assert miscounted(mirror(client, keys), keys) is None


def _ends(client: Any, keys: Keys, stem: str) -> list[str]:
    """What follows the stem in each of those keys."""
    begin = f"{keys[stem]}:"
    found = client.scan_iter(f"{begin}*", count=1_000)
    return sorted({key.decode().removeprefix(begin) for key in found})
