"""The backend for Django's setting `TASKS`: a task is a job named by the dotted path of its function.

    send.enqueue("ann", subject="hi")   {"args": ["ann"], "kwargs": {"subject": "hi"}}, of the job "shop.tasks.send"
    send.using(queue_name="slow")       the job "slow:shop.tasks.send", for workers that serve that queue
    priority 10, larger is sooner       priority -10, smaller is sooner

OPTIONS: `url` of the daemon (default: JQD_URL), `token`, and for all tasks `timeout`, `max_retry`, `keep_result`
(default: True, for `return_value`), `backoff`, `expires_in`. A task that raises is retried, like any other job.
"""

import threading
from typing import Any

from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from jqd.client import Client, JobInfo, NotFound
from jqd.domain.job_spec import FIELDS

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
except ImportError:  # before Django 6
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued

DEFAULT_QUEUE = "default"
OF_JOBS = tuple(name for name in FIELDS if name != "priority")  # options for jobs; Django's tasks have a priority
STATUS = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}  # in all other states: READY

tasks: dict[str, Any] = {}
"""Dotted path → task, for all tasks whose module has been imported. A worker serves them."""


class JqdTask(Task):  # type: ignore[misc]  # Django has no types
    """A task that adds itself to the dict `tasks` when its module is imported, so that workers find it."""

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        tasks.setdefault(self.module_path, self)


class JqdBackend(BaseTaskBackend):  # type: ignore[misc]
    """Pushes tasks to a daemon, and reads their state."""

    task_class = JqdTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._given = {"keep_result": True} | {name: self.options[name] for name in OF_JOBS if name in self.options}
        self._client: Client | None = None
        self._making = threading.Lock()

    @property
    def client(self) -> Client:
        """Return the client of this process. It is made at the first call."""
        with self._making:
            if self._client is None:
                self._client = Client(self.options.get("url"), token=self.options.get("token"))
            return self._client

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Push a task. When this returns, the task is on the daemon's disk. Raises the errors of `Client.push`."""
        self.validate_task(task)
        result = self._result(task, "", TaskResultStatus.READY, args, kwargs, enqueued_at=timezone.now())
        run_at = task.run_after
        if run_at is not None and timezone.is_naive(run_at):
            run_at = timezone.make_aware(run_at)
        job_id = self.client.push(
            job_name(task.module_path, task.queue_name),
            {"args": result.args, "kwargs": result.kwargs},
            priority=-task.priority,
            run_at=run_at,
            **self._given,
        )
        object.__setattr__(result, "id", job_id)  # the dataclass is frozen
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the state of a task. Raises TaskResultDoesNotExist if there is no such job, or if it is a job but no
        task."""
        try:
            info = self.client.get(result_id, whole=True)
        except NotFound as error:
            raise TaskResultDoesNotExist(result_id) from error
        before, _, path = info.name.rpartition(":")
        queue = before or DEFAULT_QUEUE
        if path not in tasks:  # its module may not be imported yet
            autodiscover_modules("tasks")
        # Any pusher chooses the job's name and argument: so look the name up, and never import it.
        if path not in tasks or (self.queues and queue not in self.queues) or not _is_of_task(info.argument):
            raise TaskResultDoesNotExist(result_id)
        return self._result_of(tasks[path].using(queue_name=queue, backend=self.alias), info)

    def running(self, task: Any, job_id: str, args: Any, kwargs: Any, worker_ids: list[str]) -> Any:
        """Return the state of a task while its attempt runs. `worker_ids`: the id of each attempt's worker so far."""
        now = timezone.now()
        times = {"started_at": now, "last_attempted_at": now}
        return self._result(task, job_id, TaskResultStatus.RUNNING, args, kwargs, worker_ids=worker_ids, **times)

    def end(self, result: Any, status: Any) -> None:
        object.__setattr__(result, "status", status)
        object.__setattr__(result, "finished_at", timezone.now())

    def _result_of(self, task: Any, info: JobInfo) -> Any:
        result = self._result(
            task,
            info.job_id,
            STATUS.get(info.state, TaskResultStatus.READY),
            info.argument["args"],
            info.argument["kwargs"],
            enqueued_at=info.created_at,
            started_at=info.started_at,
            finished_at=info.finished_at,
            last_attempted_at=info.started_at,
            errors=[_error(each.get("message")) for each in info.history],
            worker_ids=[str(each.get("worker")) for each in info.history],
        )
        if info.worker and info.state in ("running", "succeeded"):
            result.worker_ids.append(info.worker)
        value = self.client.result(info.job_id) if info.result_bytes else info.result
        object.__setattr__(result, "_return_value", value)
        return result

    def _result(self, task: Any, job_id: str, status: Any, args: Any, kwargs: Any, **more: Any) -> Any:
        nothing = {"enqueued_at": None, "started_at": None, "finished_at": None, "last_attempted_at": None}
        answer = nothing | {"errors": [], "worker_ids": []} | more
        return TaskResult(
            task=task, id=job_id, status=status, args=list(args), kwargs=kwargs, backend=self.alias, **answer
        )


def job_name(path: str, queue: str) -> str:
    """Return the jobtype for a task in a queue."""
    return path if queue == DEFAULT_QUEUE else f"{queue}:{path}"


def _is_of_task(argument: Any) -> bool:
    """Return whether a job's argument looks like that of a task: a map of `args` and `kwargs`."""
    given = argument if isinstance(argument, dict) else {}
    return isinstance(given.get("args"), list) and isinstance(given.get("kwargs"), dict)


def _error(message: str | None) -> Any:
    """Return a failed attempt's error in Django's form, made from its traceback, whose last line names the
    exception."""
    last = (message or "").rstrip().rpartition("\n")[2].partition(":")[0]
    path = last if all(part.isidentifier() for part in last.split(".")) else "Exception"
    return TaskError(exception_class_path=path if "." in path else f"builtins.{path}", traceback=message or "")
