"""Pushes of one block, sent in one request when it ends."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

import anyio.to_thread

from jqd.client import Ack, Client, LessSafe, PartlyPushed
from jqd.worker.ref import Ref


class PushBatch:
    """`with app.batch():` or, in async code, `async with app.batch():`. A block that raises pushes nothing."""

    def __init__(
        self,
        now: "ContextVar[PushBatch | None]",
        client: Callable[[], Client],
        *,
        atomic: bool,
        ack: Ack | None,
    ) -> None:
        """`now`: where the open batch of a thread or task is found."""
        self._now, self._client, self._atomic, self._ack = now, client, atomic, ack
        self._token: Token[PushBatch | None] | None = None
        self.refs: list[Ref[Any]] = []
        """What was pushed, in order. They have their ids when the block has ended."""
        self._told: list[Mapping[str, Any]] = []

    def add(self, told: Mapping[str, Any], ack: Ack | None, ref: Ref[Any]) -> None:
        if ack is not None:
            raise ValueError("the jobs of a batch are acknowledged together: write app.batch(ack=…)")
        self._told.append(told)
        self.refs.append(ref)

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("this batch was used before, and its jobs are pushed: make another with app.batch()")
        if self._now.get() is not None:
            raise RuntimeError("a batch is open here already; its jobs go in one request, so one is enough")
        self._token = self._now.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if error is None:
            self._push()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if error is None:
            await anyio.to_thread.run_sync(self._push)

    def _close(self) -> None:
        assert self._token is not None
        self._now.reset(self._token)

    def _push(self) -> None:
        if not self._told:
            return
        try:
            taken = self._client().push_all(self._told, atomic=self._atomic, ack=self._ack)
        except (PartlyPushed, LessSafe) as error:
            for ref, job_id in zip(self.refs, error.job_ids, strict=True):
                if job_id is not None:
                    ref.taken(job_id, duplicate=False)
            raise
        for ref, (job_id, duplicate) in zip(self.refs, taken, strict=True):
            ref.taken(job_id, duplicate)
