"""Writes metric families in Prometheus' text format or as OpenMetrics."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, cast

from prometheus_client import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from jqd.domain.array_split import Steps

OPENMETRICS = "application/openmetrics-text"
END = b"# EOF\n"  # of OpenMetrics


class Format(NamedTuple):
    """One of the two formats: how it is named and encoded."""

    kind: str
    """The media type."""
    encode: Callable[[Collector], bytes]


PLAIN = Format(CONTENT_TYPE_PLAIN_0_0_4, generate_latest)
OPEN = Format(openmetrics.CONTENT_TYPE_LATEST, cast("Callable[[Collector], bytes]", openmetrics.generate_latest))


class _One(NamedTuple):
    """A registry with one family, because the library encodes only registries."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.family


def chosen(accept: str) -> Format:
    """Return the format for a request's Accept header: OpenMetrics if the header names it."""
    kinds = (one.partition(";")[0].strip().lower() for one in accept.split(","))
    return OPEN if OPENMETRICS in kinds else PLAIN


def render(families: Iterable[Metric], form: Format) -> Steps[bytes]:
    """Return the document with these families. Adjacent families with the same name are parts of one: only the first
    part gets a head."""
    parts: list[bytes] = []
    before = ""
    for family in families:
        text = form.encode(cast("Collector", _One(family))).removesuffix(END)
        parts.append(_without_head(text) if family.name == before else text)
        before = family.name
        yield
    if form is OPEN:
        parts.append(END)
    return b"".join(parts)


def _without_head(text: bytes) -> bytes:
    while text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text
