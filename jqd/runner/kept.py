"""A small file that is written anew whenever what it holds has changed: in a thread, so that nobody else waits for it.

Changes that come during a write are written together by the next one, so a caller waits for two writes at most.
"""

import os
from collections.abc import Callable
from pathlib import Path

import trio

from jqd.words.log import get_logger

SAVE_S = 5.0  # a caller waits for the disk no longer than this, and is answered then in any case
RETRY_S = 30.0  # between tries at a disk that refused


def write_whole(path: Path, data: bytes) -> None:
    """Exchange a file for another content, durably and all at once. Raises OSError. Waits for the disk."""
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class Kept:
    """`touch` says that the content has changed, `wait_saved` waits until that change is on disk."""

    def __init__(
        self, path: Path | None, what: str, content: Callable[[], bytes], write: Callable[[Path, bytes], None]
    ) -> None:
        """`path`: None to keep nothing. `what`: for messages. `write`: to the disk, all or nothing; in a thread."""
        self.path = path
        self.failing: str | None = None
        """Why the last change would not survive a restart now; None when it would."""
        self._what = what
        self._content = content
        self._write = write
        self._changes = self._saved = 0  # how often it was changed, and how many of these the disk has
        self._changed, self._tried = trio.Event(), trio.Event()
        self._limiter = trio.CapacityLimiter(1)
        self._log = get_logger(what)

    def touch(self) -> None:
        """The content has changed."""
        self._changes += 1
        self._changed.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write every change until cancelled."""
        task_status.started()
        while True:
            if self._saved == self._changes:
                await self._changed.wait()
            self._changed = trio.Event()
            if not await self._save():
                with trio.move_on_after(RETRY_S):
                    await self._changed.wait()

    async def wait_saved(self) -> None:
        """Wait until all changes so far would survive a restart.

        A disk that refuses, or takes longer than SAVE_S, is not waited for: `failing` says why then.
        """
        goal = self._changes
        with trio.move_on_after(SAVE_S) as waiting:
            while self.path is not None and self._saved < goal and self.failing is None:
                await self._tried.wait()
        if waiting.cancelled_caught:
            self._fail(f"the disk takes more than {SAVE_S:g} s")

    async def _save(self) -> bool:
        changes, data = self._changes, self._content()
        try:
            if self.path is not None:
                # A disk that hangs keeps a thread for ever; it must not keep the daemon from ending, too.
                await trio.to_thread.run_sync(
                    self._write, self.path, data, limiter=self._limiter, abandon_on_cancel=True
                )
        except OSError as error:
            self._fail(str(error))
        else:
            self._saved, self.failing = changes, None
        self._tried.set()
        self._tried = trio.Event()
        return self.failing is None

    def _fail(self, why: str) -> None:
        if self.failing is None:
            self._log.error(f"{self._what}.not_saved", path=str(self.path), error=why)
        self.failing = f"{self._what} cannot be written to {self.path}: {why}; free space or mend the directory"
