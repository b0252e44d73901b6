"""What a chaos run puts on its cluster: the settings of a run, and what every workload can do."""

from dataclasses import dataclass
from typing import Protocol

from jqd.store import EdgeStore

MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}
MAX_RETRY = 30  # what faults cost in attempts must not kill a job
PUSH_S = 20.0  # a paused daemon answers when it goes on
CALL_S = 8.0
LOOKERS = 8
POLL_S = 0.25


@dataclass(frozen=True)
class Settings:
    """What a run is like. `seconds` of faults; starting and draining come on top."""

    seed: int
    seconds: float
    rate: int = 220
    daemons: int = 3
    workers: int = 4
    servers: int = 1
    workload: str = "jobs"

    @property
    def size(self) -> tuple[int, int, int]:
        """Of the cluster."""
        return self.daemons, self.workers, self.servers


class Workload(Protocol):
    """Pushes, and whatever else clients do."""

    async def prepare(self) -> None:
        """While all is well yet."""

    async def run(self, seconds: float) -> None:
        """Until `seconds` are over, and every request has been answered or given up."""

    async def last_words(self) -> list[str]:
        """One more job to each daemon; their ids. When it has ended, all that was pushed there before is in the
        store."""

    async def is_over(self, store: EdgeStore) -> bool:
        """Whether nothing comes any more, in a store that is at rest."""

    async def once_more(self) -> bool:
        """Do what is to be done at rest. Whether there was anything: then it has to rest again."""

    async def last_look(self, store: EdgeStore) -> None:
        """Note how all jobs stand."""
