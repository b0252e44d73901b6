"""An app with all tasks of a Django project as jobs: for `jqd worker jqd.contrib.django.worker`, or `manage.py
jqdworker`.

It imports the modules `tasks` of all installed apps, as Django's admin imports `admin`. Any process can load it if
DJANGO_SETTINGS_MODULE names the project, so `--processes` and SIGHUP work as usual.
"""

import os
import socket
from collections.abc import Callable
from typing import Any

import django
from django.apps import apps
from django.db import close_old_connections
from django.utils.module_loading import autodiscover_modules

import jqd
from jqd.contrib.django.backend import JqdBackend, job_name, tasks

try:
    from django.tasks import TaskContext, TaskResultStatus
    from django.tasks.signals import task_finished, task_started
except ImportError:  # before Django 6
    from django_tasks import TaskContext, TaskResultStatus
    from django_tasks.signals import task_finished, task_started

WORKER = f"{socket.gethostname()}-{os.getpid()}"


def _function(task: Any, name: str) -> Callable[[dict[str, Any]], Any]:
    """Return a job function that runs a task as Django expects: it sends Django's signals, and closes stale database
    connections."""
    backend = task.get_backend()

    def run(given: dict[str, Any], /) -> Any:
        job = jqd.current()
        result = backend.running(task, job.job_id, given["args"], given["kwargs"], [WORKER] * job.attempt)
        before = (TaskContext(task_result=result),) if task.takes_context else ()
        close_old_connections()
        task_started.send(type(backend), task_result=result)
        try:
            returned = task.call(*before, *given["args"], **given["kwargs"])
        except Exception as error:
            is_over = job.is_last and not isinstance(error, jqd.Snooze)  # a snooze spends no attempt
            if is_over or isinstance(error, jqd.Failed | jqd.Cancelled):
                backend.end(result, TaskResultStatus.FAILED)
                task_finished.send(type(backend), task_result=result)
            raise
        else:
            backend.end(result, TaskResultStatus.SUCCESSFUL)
            task_finished.send(type(backend), task_result=result)
            return returned
        finally:
            close_old_connections()

    run.__name__, run.__module__, run.__doc__ = name, task.func.__module__, task.func.__doc__
    return run


def _served() -> jqd.App:
    if not apps.ready:
        django.setup()
    autodiscover_modules("tasks")
    app = jqd.App()
    for path, task in sorted(tasks.items()):
        backend = task.get_backend()
        if isinstance(backend, JqdBackend):
            for queue in sorted({*backend.queues, task.queue_name}):
                name = job_name(path, queue)
                app.job(name)(_function(task, name))
    return app


app = _served()
