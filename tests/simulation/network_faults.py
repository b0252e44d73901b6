"""What goes wrong between a daemon and the store, and on its journal's way there; `faults.py` says what each is."""

import trio

from tests.simulation.causes import Slow
from tests.simulation.link import Weather
from tests.simulation.plan import Fault
from tests.simulation.stage import Stage

SLOW_TAIL_S = 4.0  # what was asked of a slow store in its last moment is answered by then


class NetworkFaults:
    """Faults of the links to the store's partitions."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _partitions(self, fault: Fault) -> list[int]:
        """Those that it befalls."""
        return list(range(len(self._stage.stores))) if fault.partition is None else [fault.partition]

    def _weathers(self, fault: Fault) -> list[Weather]:
        return [self._stage.weathers[number] for number in self._partitions(fault)]

    async def _away(self, fault: Fault) -> None:
        aways = [self._stage.history.gone("*", "the store is away", number) for number in self._partitions(fault)]
        for weather in self._weathers(fault):
            weather.away = True
        await trio.sleep(fault.span_s)
        for weather in self._weathers(fault):
            weather.away = False
        for away in aways:
            away.to_s = trio.current_time()

    async def _absent(self, fault: Fault) -> None:
        for number in self._partitions(fault):
            self._stage.history.gone("*", "the store is away", number)
            self._stage.weathers[number].away = True

    async def _cut(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        life = node.life
        if life is None or not life.links:
            return
        aways = [self._stage.history.gone(node.name, "cut off", number) for number in self._partitions(fault)]
        for number in self._partitions(fault):
            life.links[number].cut = True
        await trio.sleep(fault.span_s)
        for number in self._partitions(fault):
            life.links[number].cut = False
        for away in aways:
            away.to_s = trio.current_time()

    async def _lost(self, fault: Fault) -> None:
        for weather in self._weathers(fault):
            weather.lost = 0.05 + 0.4 * fault.part
        await trio.sleep(fault.span_s * 2)
        for weather in self._weathers(fault):
            weather.lost = 0.0

    async def _late(self, fault: Fault) -> None:
        for weather in self._weathers(fault):
            weather.late = 0.05 + 0.3 * fault.part
        await trio.sleep(fault.span_s * 2)
        for weather in self._weathers(fault):
            weather.late = 0.0

    async def _slow(self, fault: Fault) -> None:
        began_s = trio.current_time()
        for number in self._partitions(fault):
            self._stage.weathers[number].slow_s = 0.1 + 1.5 * fault.part
            self._stage.history.slows.append(Slow(began_s, began_s + fault.span_s + SLOW_TAIL_S, number))
        await trio.sleep(fault.span_s)
        for weather in self._weathers(fault):
            weather.slow_s = 0.0

    async def _lag(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        for number in self._partitions(fault):
            node.lags_s[number] = 0.3 + 3.0 * fault.part
        await trio.sleep(fault.span_s * 3)
        for number in self._partitions(fault):
            node.lags_s[number] = 0.0

    async def _backlog(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        for number in self._partitions(fault):
            node.backlogs_s[number] = 1.0 + 4.0 * fault.part
        await trio.sleep(fault.span_s * 3)
        for number in self._partitions(fault):
            node.backlogs_s[number] = 0.0
