"""What Django is told of a job that is none of its tasks; and no name that somebody pushed makes it import a module."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import django
import pytest
from django.conf import settings

import jqd
from examples.mysite import settings as mysite
from jqd.client import Client, JobInfo
from jqd.contrib.django.backend import JqdBackend

try:
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_finished
except ImportError:  # before Django 6
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_finished

settings.configure(**{name: getattr(mysite, name) for name in dir(mysite) if name.isupper()})
django.setup()
from jqd.contrib.django import worker  # noqa: E402 - it asks for the settings

THANK = "examples.mysite.shop.tasks.thank"


class OneJob:
    """A client of a daemon that knows one job."""

    def __init__(self, name: str, argument: Any) -> None:
        self.job = JobInfo(job_id="1", name=name, state="waiting", argument=argument, created_at=datetime.now(UTC))

    def get(self, job_id: str, *, whole: bool) -> JobInfo:
        assert (job_id, whole) == ("1", True)
        return self.job


def asked(name: str, argument: Any) -> Any:
    """Of this job, as whoever has its id asks."""
    backend = JqdBackend("default", mysite.TASKS["default"])
    backend._client = cast("Client", OneJob(name, argument))
    return backend.get_result("1")


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("trapped.word", {"args": [], "kwargs": {}}),
        ("os.path.join", {"args": [], "kwargs": {}}),
        ("report", None),
        (THANK, [1]),
        (THANK, {"args": 1, "kwargs": {}}),
        (THANK, {"args": [], "kwargs": [1]}),
        (f"nowhere:{THANK}", {"args": [1], "kwargs": {}}),
    ],
)
def test_a_job_that_is_no_task_is_no_result(
    name: str, argument: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trapped.py").write_text("word = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TaskResultDoesNotExist):
        asked(name, argument)
    assert "trapped" not in sys.modules


def test_a_task_is_found_whose_module_nobody_has_imported_yet() -> None:
    result = asked(f"slow:{THANK}", {"args": [1], "kwargs": {}})
    assert (result.task.module_path, result.task.queue_name, result.args) == (THANK, "slow", [1])


class Backend:
    """What a task's backend notes."""

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def running(self, *_: Any) -> Any:
        return SimpleNamespace(id="1", status="", task=SimpleNamespace(module_path="x"))

    def end(self, result: Any, status: Any) -> None:
        self.ended.append(status)


@pytest.mark.parametrize(
    ("error", "is_last", "ends"),
    [
        (jqd.Snooze("5m"), True, False),
        (jqd.Cancelled("not wanted"), False, True),
        (jqd.Failed("no such order"), False, True),
        (ValueError("odd"), True, True),
        (ValueError("odd"), False, False),
    ],
)
def test_a_task_is_finished_with_its_last_attempt_which_a_snooze_is_not(
    error: Exception, is_last: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call() -> None:
        raise error

    backend = Backend()
    task = SimpleNamespace(get_backend=lambda: backend, takes_context=False, call=call, func=call)
    monkeypatch.setattr(jqd, "current", lambda: SimpleNamespace(job_id="1", attempt=1, is_last=is_last))
    finished: list[Any] = []

    def note(sender: Any, **_: Any) -> None:
        finished.append(sender)

    task_finished.connect(note)
    try:
        with pytest.raises(type(error)):
            worker._function(task, "x")({"args": [], "kwargs": {}})
    finally:
        task_finished.disconnect(note)
    assert (len(backend.ended), len(finished)) == (ends, ends)
