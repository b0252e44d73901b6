"""No bytes bring a reader to anything but an answer or its own refusal: the short form. The long one: `make fuzz`."""

import random

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.rows import garbage
from tests.fuzz.targets import TARGETS, any_bytes

short = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_answers_or_refuses(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        target(seed)

    @short
    @given(any_bytes(target))
    def any_of_them(data: bytes) -> None:
        target(data)

    any_of_them()


async def test_garbage_in_the_store_is_answered_or_refused() -> None:
    told = await garbage(2, random.Random(5))
    assert told["refused"]
