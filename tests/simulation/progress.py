"""Whether what waits is started in time although one partition of the store is away.

Asked in runs where nothing makes the other partitions slow (`Plan.absent`). A job's time counts while somebody could
and should do the next thing with it:

    in a journal only   whoever took it is there and may claim
    in the store        some daemon is there, may claim from its partition, and workers have room
    in a hand           that daemon is there and trusts its lease, and workers have room

and only as long as it has not been started at all, nobody cancelled it, and no job of a partition that is there has to
run alone, for which all others wait as they should. A delay counts from the answer to the push: a daemon that was
paused reads the request long after the client sent it, and dates the job then.
"""

import trio

from jqd.domain.jobid import partition_of
from tests.simulation.causes import Attempt
from tests.simulation.check import Story
from tests.simulation.node import RESIGN_S, Life
from tests.simulation.stage import Stage
from tests.simulation.worker import SLOTS
from tests.store.job_places import places_of

LOOK_S = 0.25
BOUND_S = (
    4.0  # an idle poll, a batch on its way, a connection that takes time; the partition is away for five times that
)
PATIENCE_S = RESIGN_S + 5.0  # it notices with its next renewal, looks each second, and leaves
SUSPECT = 2  # deaths after which a job runs alone


class Progress:
    """Looks again and again; what waits too long is a broken promise."""

    def __init__(self, stage: Stage, absent: int) -> None:
        self._stage = stage
        self._absent = absent
        self._waits: dict[int, tuple[str, float]] = {}  # job → for whom, for how long

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            suspects = any(self._suspects())
            for story in self._stage.history.stories.values():
                whom = None if suspects else self._waits_for(story)
                if whom is None:
                    self._waits.pop(story.number, None)
                else:
                    self._count(story.number, whom)

    def _count(self, number: int, whom: str) -> None:
        before, waited_s = self._waits.get(number, (whom, 0.0))
        waited_s = waited_s + LOOK_S if before == whom else 0.0
        if waited_s > BOUND_S:
            self._stage.history.wrong(
                f"held up: job {number} waits for {whom} although only partition {self._absent} of the store is away"
            )
            waited_s = 0.0
        self._waits[number] = whom, waited_s

    def _waits_for(self, story: Story) -> str | None:
        home = partition_of(story.job_id, len(self._stage.stores))
        is_due = trio.current_time() >= story.acked_at_s + self._stage.history.plan.works[story.number].delay_s
        if (
            home == self._absent
            or not is_due
            or story.attempts
            or story.cancels
            or story.number in self._stage.history.awaiting.parents
        ):
            return None
        place = places_of(self._stage.stores[home]).place(story.job_id)
        if place is None:
            return next((life.label for life in self._able(home) if life.label.startswith(f"{story.taker}.")), None)
        if not place.is_open:
            return None
        able = [life for life in self._able(home) if self._at_work(life) < SLOTS]
        if place.name == "held":
            return next((life.label for life in able if _sysid(life) == place.sysid), None)
        return "anybody" if able else None

    def _able(self, home: int) -> list[Life]:
        lives = (node.life for node in self._stage.nodes)
        return [life for life in lives if life is not None and self._is_able(life, home)]

    def _is_able(self, life: Life, home: int) -> bool:
        if life.dead or life.requests is None or life.stop.is_set() or self._stage.is_frozen(life):
            return False
        assert life.daemon is not None, "requests are served after it is built"
        return life.daemon.partitions[home].membership.not_ready_reason() is None

    def _at_work(self, life: Life) -> int:
        history = self._stage.history
        attempts: list[Attempt] = [attempt for story in history.stories.values() for attempt in story.attempts]
        attempts += [run for tale in history.tales.values() for run in tale.runs]
        return sum(attempt.life == life.label and attempt.fate is None for attempt in attempts)

    def _suspects(self) -> list[str]:
        return [
            job_id
            for number, store in enumerate(self._stage.stores)
            if number != self._absent
            for job_id, (deaths, _) in places_of(store).deaths().items()
            if deaths >= SUSPECT and (place := places_of(store).place(job_id)) is not None and place.is_open
        ]


class Patience:
    """Nobody waits for ever for a daemon that cannot read what it knows: asked in runs of `PATIENT` faults."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._since: dict[str, float] = {}  # by life

    async def watch(self) -> None:
        """Until cancelled."""
        before = self._begun()
        while True:
            await trio.sleep(LOOK_S)
            if before != (now := self._begun()):
                before = now  # a new life of the store is entered: they wait anew
                self._since.clear()
            for node in self._stage.nodes:
                self._look(node.life)

    def _begun(self) -> tuple[int, ...]:
        """Grows with each life that begins: the store lost data, or was started anew."""
        return len(self._stage.history.losses), *(store.server.runs for store in self._stage.stores)

    def _look(self, life: Life | None) -> None:
        if life is None or life.dead or life.daemon is None:
            return
        now_s = trio.current_time()
        waits = any("another daemon" in str(each.membership.not_ready_reason()) for each in life.daemon.partitions)
        if not waits:
            self._since.pop(life.label, None)
        elif now_s - self._since.setdefault(life.label, now_s) > PATIENCE_S:
            self._stage.history.wrong(f"held up: {life.label} waits for a daemon that cannot read its disk")
            self._since[life.label] = now_s


def _sysid(life: Life) -> str:
    assert life.daemon is not None
    return life.daemon.control.sysid
