"""Sends the spans of a worker's attempts to a collector, where the environment names one."""

from jqd.client.tracing import NoTracing, set_up
from jqd.domain.log import get_logger

SERVICE = "jqd-worker"  # unless OTEL_SERVICE_NAME says otherwise


def trace_attempts() -> None:
    """Set up tracing, once the app is loaded, for it may have set up a tracer of its own. Without the libraries the
    worker works on, and logs what is missing.
    """
    try:
        set_up(SERVICE)
    except NoTracing as error:
        get_logger("worker").warning("worker.not_traced", why=str(error))
