"""Sends the spans of a worker's attempts to a collector, where the environment names one."""

from jqd.client.tracing import NoTracing, set_up
from jqd.domain.log import get_logger

SERVICE = "jqd-worker"  # unless OTEL_SERVICE_NAME says otherwise


def trace_attempts() -> None:
    """Called when the app is loaded, which may have set up a tracer of its own. A worker without the libraries works
    on, and says what is missing."""
    try:
        set_up(SERVICE)
    except NoTracing as error:
        get_logger("worker").warning("worker.not_traced", why=str(error))
