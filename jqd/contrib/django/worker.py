"""The tasks of a Django project as an app: `jqd worker jqd.contrib.django.worker`, or `manage.py jqdworker`.

The modules `tasks` of all installed apps are imported, as the admin imports `admin`. Where DJANGO_SETTINGS_MODULE says
which project it is, any process may load this: so `--processes` and SIGHUP work as ever.
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
    """Return a function that runs a task as Django expects: with fresh connections to the database, and its signals."""
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
            is_over = job.is_last and not isinstance(error, jqd.Snooze)  # which is no attempt: it begins again
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
