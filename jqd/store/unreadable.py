"""Jobs whose rows cannot be read: the store's methods leave them out, and move them to the dead set (failed jobs)."""

from typing import NamedTuple

import trio

from jqd.domain.job import Held
from jqd.domain.log import get_logger
from jqd.store import codec
from jqd.store.keys import Keys
from jqd.store.scripts import ScriptCaller
from jqd.store.views import unreadable

WARN_S = 3_600.0  # after the last one was met; they stay in the dead set


class _Met(NamedTuple):
    why: str
    row: object
    jobtype: str


class UnreadableJobs:
    """Collects the unreadable jobs of one partition, and moves them to the dead set."""

    def __init__(self, keys: Keys, caller: ScriptCaller) -> None:
        self._keys = keys
        self._caller = caller
        self._met: dict[str, _Met] = {}
        self._last: tuple[float, str] | None = None
        self._log = get_logger("store")

    @property
    def complaint(self) -> str | None:
        """Return a sentence for health about the last row that could not be read, if that was within the last hour;
        else None."""
        if self._last is None or trio.current_time() - self._last[0] > WARN_S:
            return None
        return f"{self._last[1]}; `jqd errors` lists such jobs with the reason unreadable"

    def warn(self, why: str) -> None:
        self._last = trio.current_time(), why

    def note(self, job_id: str, why: str, row: object, jobtype: str = "") -> None:
        """Remember an unreadable job until `bury` is called. `jobtype`: "": it is not known."""
        self.warn(why)
        self._met[job_id] = _Met(why, row, jobtype)

    def held(
        self,
        job_id: str,
        fence: int,
        row: object,
        tries: object,
        generation: object,
        *,
        jobtype: str = "",
        bare: bool = False,
    ) -> Held | None:
        """Decode a job in flight (`decode_held`). If it cannot be read, note it and return None."""
        try:
            return codec.decode_held(self._keys, job_id, fence, row, tries, generation, bare=bare)
        except codec.Unreadable as error:
            self.note(job_id, str(error), row, jobtype)
            return None

    async def bury(self) -> bool:
        """Move the noted jobs to the dead set, unless their rows have changed. Returns whether any was moved."""
        met, self._met = self._met, {}
        flat: list[object] = []
        for job_id, (why, row, jobtype) in met.items():
            flat += (job_id, row or "", jobtype, codec.encode_outcome(unreadable(job_id, why, jobtype, row)))
        buried = codec.list_of(self._keys, "jobs", await self._caller.call("bury", *flat)) if flat else []
        for each in buried:
            job_id = codec.text(self._keys, "jobs", each)
            self._log.error("store.unreadable", id=job_id, error=met[job_id].why)
        return bool(buried)
