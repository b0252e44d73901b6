"""Tells a daemon how far the jobs at work are: a heartbeat for each that has said so, at most one a second.

    job.progress(…) ──▶ the item's voice ──▶ beats ──POST /v1/jobs/{id}/heartbeat──▶ the store, for all daemons to show

It is the call that workers have which pull their jobs. One request at a time: what cannot be told in time is not told,
for the next word is newer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import httpx2
import msgspec
import trio

from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK
from jqd.worker.batch import Item

EVERY_S = 1.0  # as often as somebody who watches looks; each is a write in the store
CALL_TIMEOUT_S = 5.0
GONE = (404, 409)  # the job is not there, or in this lease, any more: there is nothing to tell


class Place(Protocol):
    daemon: str
    is_away: bool


class ProgressReporter:
    """`spoke` is for any thread."""

    def __init__(self, places: Sequence[Place], http: httpx2.AsyncClient) -> None:
        self._places, self._http = places, http
        self._items: dict[Item, None] = {}
        self._trouble = ""
        self._log = get_logger("worker")

    def spoke(self, item: Item) -> None:
        if item.voice is not None and item.voice.far is not None and item.batch.lease_id:
            self._items[item] = None

    async def run(self) -> None:
        while True:
            await trio.sleep(EVERY_S)
            for item in list(self._items):
                self._items.pop(item, None)
                if item.voice is not None and (far := item.voice.far) is not None and not item.ended:
                    item.voice.far = None
                    await self._tell(item, *far)

    async def _tell(self, item: Item, done: float | None, message: str) -> None:
        told: Mapping[str, Any] = {"lease_id": item.batch.lease_id, "message": message}
        body = msgspec.msgpack.encode(told if done is None else {**told, "progress": done})
        trouble = "no daemon answers"
        for place in self._places:
            if place.is_away:
                continue
            try:
                with trio.fail_after(CALL_TIMEOUT_S):
                    url = f"{place.daemon}/v1/jobs/{item.job_id}/heartbeat"
                    answer = await self._http.post(url, content=body, headers={"content-type": MSGPACK})
            except (httpx2.HTTPError, trio.TooSlowError) as error:
                trouble = f"{place.daemon} is not reached: {type(error).__name__} {error}".rstrip()
                continue
            if answer.status_code == 404:
                trouble = ""  # the daemon of another store, perhaps
                continue
            trouble = "" if answer.status_code in (200, *GONE) else f"{place.daemon} answers {answer.status_code}"
            break
        if trouble and trouble != self._trouble:
            self._log.warning("worker.progress_untold", trouble=trouble, next="the jobs go on")
        self._trouble = trouble
