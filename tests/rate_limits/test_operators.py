"""What an operator takes is counted: its steps bound its time for any values, of any length."""

from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from jqd.domain.clock import thread_s
from jqd.rate_limits.matcher import STEPS_MAX, Expression
from jqd.rate_limits.operators import FUNCTIONS, Failed, Steps, TooLong

MANY = 1_000_000_000
LONG = 8_000_000  # characters: to read them once takes a millisecond at least
STEP_S = 3e-6  # ten times what a step takes
FLOOR_S = 3e-4  # many times what takes no step of its own
DIGITS = "-" * LONG
VALUES: list[Any] = [
    None,
    True,
    7,
    -1.5,
    "a",
    DIGITS,
    f"{DIGITS}x",
    f"x{DIGITS}"[1:],  # equals DIGITS, and is another object
    b"-" * LONG,
    [0] * 10_000,
    ["a"] * 10_000,
    [DIGITS],
    {DIGITS: 1},
    {str(number): number for number in range(10_000)},
]


def spent(name: str, *values: Any) -> int:
    """The steps that a function takes for these values."""
    steps = Steps(MANY)
    with suppress(Failed):
        FUNCTIONS[name, len(values)](*values, steps)
    return MANY - steps.left


def time_s(name: str, values: tuple[Any, ...]) -> float:
    began_s = thread_s()
    spent(name, *values)
    return thread_s() - began_s


@pytest.mark.parametrize(("name", "count"), FUNCTIONS)
def test_the_steps_of_every_function_bound_its_time(name: str, count: int) -> None:
    for values in product(VALUES, repeat=count):
        bound_s = FLOOR_S + STEP_S * spent(name, *values)
        assert min(time_s(name, values) for _ in range(3)) < bound_s, (name, [repr(value)[:20] for value in values])


@pytest.mark.parametrize("pattern", ["", "a", "|" * 900, "(" * 400 + ")" * 400, "(|)" * 300, "[a-z]+", r"\\pL", "^|$"])
@pytest.mark.parametrize("text", ["", "a", "a" * 16_000])
def test_the_steps_of_a_pattern_bound_its_time(pattern: str, text: str) -> None:
    """Each match builds the pattern anew: one without a place, too."""
    expression = Expression(f"job.tags.all(x, job.argument.matches('{pattern}') || true)", ("BOOL",))
    steps, took_s = Steps(STEPS_MAX), list[float]()
    for _ in range(3):
        began_s = thread_s()
        with suppress(TooLong):
            expression.value({"argument": text, "tags": [""] * 100}, steps := Steps(STEPS_MAX))
        took_s.append(thread_s() - began_s)
    assert min(took_s) < FLOOR_S + STEP_S * (STEPS_MAX - steps.left)


@pytest.mark.parametrize(
    ("length", "part", "steps"),
    [
        (2_400, 1_200, 1_201 * 1_210 // 256 + 1_200 // 64),  # each place of a short text, for the whole part
        (12_000, 10_800, 1_201 * 10_810 // 256 + 10_800 // 64),  # and of one that is hardly longer than the part
        (12_000, 90, 11_911 * 100 // 256 + 1),
        (12_000, 600, 11_901 * 110 // 256 + 600 // 64),  # else the search skips what it has seen
        (10, 6_400, 6_410 // 256 + 100),
    ],
)
def test_a_search_takes_steps_for_what_it_may_compare(length: int, part: int, steps: int) -> None:
    assert spent("contains", "a" * length, "b" * part) == steps


@pytest.mark.parametrize(
    "text", ["{job.argument.s: 1}.size()", "job.argument.s in {'a': 1} ? 1 : 2", "{'a': 1}[job.argument.s]"]
)
def test_a_key_takes_steps_for_its_length(text: str) -> None:
    left = []
    for length in (64, 64_000):
        steps = Steps(STEPS_MAX)
        with suppress(Failed):
            Expression(text, ("INT",)).value({"argument": {"s": "k" * length}}, steps)
        left.append(steps.left)
    assert left[0] - left[1] == 999


def test_a_long_key_that_is_missing_is_told_in_few_words() -> None:
    expression = Expression("job.argument.m[job.argument.s]", ("STRING",))
    with pytest.raises(Failed) as raised:
        expression.value({"argument": {"m": {}, "s": "k(" * 8_000}})
    assert len(str(raised.value)) < 200
