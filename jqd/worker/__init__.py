"""The worker's SDK: functions become an HTTP worker. It imports nothing of the daemon."""

from jqd.worker.app import App
from jqd.worker.context import Cancelled, Context, Failed, Retry
from jqd.worker.current import log_by_job
from jqd.worker.job import Job
from jqd.worker.load import AppNotFound, import_app, load_app
from jqd.worker.serve import serve
from jqd.worker.service import Service, ServiceConfig

__all__ = [
    "App",
    "AppNotFound",
    "Cancelled",
    "Context",
    "Failed",
    "Job",
    "Retry",
    "Service",
    "ServiceConfig",
    "import_app",
    "load_app",
    "log_by_job",
    "serve",
]
