"""No bytes bring a reader to anything but an answer or its own refusal: the short form. The long one: `make fuzz`."""

import random

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.rows import Filled, garbage
from tests.fuzz.targets import TARGETS, any_bytes
from tests.store.furnished import KEYS
from tests.store.test_planted import CALLS

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


async def test_a_lease_that_is_no_number_is_looked_at_once() -> None:
    """It was looked at again and again, by a script that nobody can stop once it has written."""
    here = Filled()
    await here.begin()
    key = f"{KEYS['beats']}:10".encode()
    odd = [b"nan", b"inf", b"0x10", b" 5", b"1e3", b"9" * 40, b"-0", b"x", b""]
    for member in odd:
        here.store.server.keyspace.zadd(key, 0, member)
    assert (await CALLS["find_silent"](here)) is not None
    left = here.store.server.keyspace.keys.get(key)
    assert left is None or not {*odd} & {*left.scores}


async def test_garbage_in_the_store_is_answered_or_refused() -> None:
    told = await garbage(4, random.Random(5))
    assert told["refused"]
