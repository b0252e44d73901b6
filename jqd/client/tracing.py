"""Trace spans of pushes and attempts, by OpenTelemetry's conventions for messaging. Needs the extra `otel`.

    send NAME      PRODUCER   a push; its context goes with the job, as `traceparent`
    process NAME   CONSUMER   an attempt, in the trace of its push and linked to it; waiting has no span

There are no spans unless the program has set up a tracer provider, or `set_up` did, for `jqd worker`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jqd import __version__
from jqd.client.environ import has_collector

SYSTEM = "jqd"
SDK = "opentelemetry.sdk.trace"
"""The module of OpenTelemetry's SDK: a program that traces has imported it."""
MISSING = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but there is no opentelemetry here: pip install 'jqd[otel]'"


class NoTracing(Exception):
    """The environment names a collector, but the OpenTelemetry libraries are missing."""


def set_up(service: str) -> None:
    """Set up tracing to the collector that the environment names. Does nothing if it names none. `service`: the name of
    this program, unless OTEL_SERVICE_NAME is set. Raises NoTracing."""
    if not has_collector():
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise NoTracing(MISSING) from error
    if tracer() is not None:
        return  # the program has set up its own provider
    resource = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def tracer() -> Any:
    """Return the tracer; None: the program does not trace. This never imports the SDK itself."""
    sdk = sys.modules.get(SDK)
    if sdk is None:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return provider.get_tracer(SYSTEM, __version__) if isinstance(provider, sdk.TracerProvider) else None


@contextmanager
def sending(jobs: Sequence[Mapping[str, Any]], url: str) -> Iterator[list[Mapping[str, Any]]]:
    """Open a span for a push, and yield the jobs, each with the context of the span unless it has one already."""
    found = tracer()
    if found is None or not jobs:
        yield [*jobs]
        return
    from opentelemetry import trace

    names = {str(job.get("name")) for job in jobs}
    attributes = {**_attributes("send", names), "server.address": url}
    if len(jobs) > 1:
        attributes["messaging.batch.message_count"] = len(jobs)
    elif jobs[0].get("job_id"):
        attributes["messaging.message.id"] = str(jobs[0]["job_id"])
    with found.start_as_current_span(_name("send", names), kind=trace.SpanKind.PRODUCER, attributes=attributes):
        own = traceparent()
        yield [job if job.get("traceparent") else {**job, "traceparent": own} for job in jobs]


def traceparent() -> str | None:
    """Return the W3C context of the span that is open now; None if no span is open."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


class Attempt:
    """The trace span of one attempt. It is open in the thread or task that runs the job's function."""

    def __init__(self, span: Any, token: Any) -> None:
        self._span, self._token = span, token

    def fail(self, kind: str, error: BaseException | None = None) -> None:
        """Note in the span that the attempt failed. `kind`: an exception's name, or `timeout`."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR, kind)
        if error is not None:
            self._span.record_exception(error)

    def end(self) -> None:
        from opentelemetry import context

        context.detach(self._token)
        self._span.end()


def processing(name: str, job_id: str, attempt: int, trace_of_push: str) -> Attempt | None:
    """Open the span of an attempt and return it; None if the program does not trace. `trace_of_push`: the `traceparent`
    of the job's push."""
    found = tracer()
    if found is None:
        return None
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    pushed = TraceContextTextMapPropagator().extract({"traceparent": trace_of_push}, context.Context())
    creation = trace.get_current_span(pushed).get_span_context()
    attributes = {
        **_attributes("process", {name}),
        "messaging.message.id": job_id,
        "jqd.attempt": attempt,
    }
    span = found.start_span(
        _name("process", {name}),
        context=pushed,
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=[trace.Link(creation)] if creation.is_valid else [],
    )
    return Attempt(span, context.attach(trace.set_span_in_context(span)))


def _name(operation: str, names: set[str]) -> str:
    return f"{operation} {min(names)}" if len(names) == 1 else operation


def _attributes(operation: str, names: set[str]) -> dict[str, Any]:
    named = {"messaging.destination.name": min(names)} if len(names) == 1 else {}
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        **named,
    }
