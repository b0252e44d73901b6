"""Logs an internal error once, with an id that the client gets too, the exception's type, and where it was raised. The
exception's message is never logged, because it may contain bytes of a request, and so secrets."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

FRAMES_MAX = 6  # innermost frames of the stack that are logged


def new_id() -> str:
    """Return a random id for an error, which is shown in the log and in the response."""
    return os.urandom(6).hex()


def place_of(error: BaseException) -> str:
    """Return where an error was raised, and from where that function was called, innermost first: files, lines and
    functions, without values."""
    frames = traceback.extract_tb(leaf(error).__traceback__, limit=-FRAMES_MAX)
    return " < ".join(f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in reversed(frames))


def leaf(error: BaseException) -> BaseException:
    """Return the first exception within an exception group that is not itself a group. Any other exception is returned
    as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def log_internal_error(log: Any, event: str, error: BaseException, **fields: object) -> str:
    """Log an error in one line, under a new id, and return that id. Never raises."""
    fault = new_id()
    log_event(log.error, event, id=fault, error=type(leaf(error)).__name__, place=place_of(error), **fields)
    return fault


def log_event(write: Callable[..., object], event: str, **fields: object) -> bool:
    """Log an event; return whether that succeeded. Never raises."""
    try:
        write(event, **fields)
    except Exception:  # noqa: BLE001 - logging failed (a full disk, a closed pipe), but the work must go on
        return False
    return True


def _short(filename: str) -> str:
    return "/".join(Path(filename).parts[-2:])
