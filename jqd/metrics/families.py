"""Makes metric families, each in parts: one with 40,000 samples would block the loop for a quarter of a second."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from jqd.domain.histogram import Histogram

PART = 60  # samples in one part of a family: encoding them takes a third of a millisecond
Labels = Sequence[str]
Samples = Iterable[tuple[Labels, float]]
T = TypeVar("T")


def _families(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, help_text: str, labels: Labels, samples: Samples
) -> Iterator[Metric]:
    for part in _parts(samples, PART):
        family = kind(name, help_text, labels=labels)
        for values, value in part:
            family.add_metric(values, value)
        yield family


counters = partial(_families, CounterMetricFamily)
"""Yields the parts of a family of counters. `name`: without `_total`."""
gauges = partial(_families, GaugeMetricFamily)


def histograms(
    name: str, help_text: str, labels: Labels, samples: Iterable[tuple[Labels, Histogram]]
) -> Iterator[Metric]:
    for part in _parts(samples, PART // 15):
        family = HistogramMetricFamily(name, help_text, labels=labels)
        for values, one in part:
            names = [*map(floatToGoString, one.bounds), "+Inf"]
            family.add_metric(values, [*zip(names, accumulate(one.counts), strict=True)], one.total)
        yield family


def counter(name: str, help_text: str, value: float) -> Iterator[Metric]:
    return counters(name, help_text, (), [((), value)])


def gauge(name: str, help_text: str, value: float) -> Iterator[Metric]:
    return gauges(name, help_text, (), [((), value)])


def _parts(samples: Iterable[T], most: int) -> Iterator[list[T]]:
    """Split samples into lists of at most `most`. Yields at least one list, so that a family without samples has its
    head."""
    part: list[T] = []
    is_yielded = False
    for sample in samples:
        part.append(sample)
        if len(part) == most:
            yield part
            part, is_yielded = [], True
    if part or not is_yielded:
        yield part
