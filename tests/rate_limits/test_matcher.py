"""What an expression may take is bounded by what it does: one held up a daemon for minutes, another for seconds."""

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from cel_expr_python import cel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jqd.domain.clock import thread_s
from jqd.rate_limits.matcher import STEPS_MAX, Expression, NotUnderstood, places_of
from jqd.rate_limits.operators import Failed, Steps, TooLong

LIST = "job.argument.l"
ARGUMENT = {"l": [*range(1000)], "s": "ab" * 4_000, "k": ["x" * 15] * 500, "m": {str(n): n for n in range(500)}}
JOB = {"name": "mail", "tenant": "", "priority": 5, "tags": ["a", "b"], "argument": ARGUMENT}
ANY = ("BOOL", "INT", "DOUBLE", "STRING", "NULL_TYPE", "a LIST", "a MAP")
WIDE_S = 0.15  # of the thread's own time: many times what so many steps take
LONG = [
    f"({'+'.join([LIST] * 9)}).map(x, x).size() < 0",
    f"[{','.join(['job.argument'] * 24)}].exists(j, {' || '.join(['j != j'] * 40)})",
    f"{LIST}.all(a, ({LIST} + {LIST}) != [])",
    f"{LIST}.all(a, {LIST}.all(b, true))",
    f"{LIST}.map(a, {LIST} + {LIST}).size() < 0",
    f"{LIST}.all(a, job.argument.s + job.argument.s != '')",
    f"{LIST}.all(a, job.argument == job.argument)",
    f"{LIST}.all(a, !job.argument.s.contains('{'ab' * 40}b'))",
    f"{LIST}.all(a, !('y' in job.argument.k))",
    f"{LIST}.all(a, !job.argument.s.matches('(a|b)*a(a|b)*c'))",
    r"job.argument.k.all(a, !a.matches('\\pL+$$1'))",
    f"{LIST}.all(a, {LIST}.all(b, 1 / 0 == 1))",
]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A pass of Python's collector over all that the tests have is no time of an expression."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("text", LONG)
def test_what_takes_long_is_stopped(text: str) -> None:
    expression, steps, began_s = Expression(text, ("BOOL",)), Steps(STEPS_MAX), thread_s()
    with pytest.raises(TooLong, match=f"more than {STEPS_MAX} steps"):
        expression.value(JOB, steps)
    assert thread_s() - began_s < WIDE_S
    assert steps.left == 0


@pytest.mark.parametrize(
    "text",
    [
        f"{LIST}.exists(a, a == 999)",
        f"{LIST}.map(a, a + 1).size() == 1000",
        f"{LIST}.filter(a, a > 900).size() == 99",
        "job.argument.k.all(k, k.startsWith('x') && k.size() < 20)",
        "job.argument.m.exists(k, k == '7')",
        "job.tags.all(a, job.tags.exists(b, a == b))  // two loops",
        "job.argument.s.contains('ba')",
    ],
)
def test_what_people_ask_of_a_thousand_items_is_not(text: str) -> None:
    assert Expression(text, ("BOOL",)).value(JOB) is True


def expressions() -> st.SearchStrategy[str]:
    """Of the whole grammar, most of them with a value."""
    written = ["1", "-2", "0", "1.5", "9223372036854775807", "'a'", "''", "true", "null", "[]", "[1, 'a', 2.0]"]
    named = ["a", "a", LIST, "job.argument.s", "job.argument.m", "job.argument.none", "job.priority", "job.tags"]
    binary = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"])
    loops = st.sampled_from(["all", "exists", "exists_one", "map", "filter"])
    of_two = st.sampled_from(["contains", "startsWith", "endsWith"])
    of_one = st.sampled_from(["size", "!", "-", "int", "string", "double"])

    def larger(of: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        inner = of.map(lambda text: f"dyn({text})")
        return st.one_of(
            st.tuples(inner, binary, inner).map(" ".join),
            st.builds("{}.{}(a, {})".format, inner, loops, inner),
            st.builds("{} ? {} : {}".format, inner, inner, inner),
            st.builds("{}({})".format, of_one, inner),
            st.builds("{}.{}({})".format, inner, of_two, inner),
            st.builds("{}[{}]".format, inner, inner),
            st.builds("[{}, {}]".format, inner, inner),
        )

    return st.recursive(st.sampled_from(written + named), larger, max_leaves=10)


def understood(text: str) -> Expression | None:
    try:
        return Expression(f"[7].map(a, dyn({text}))[0]", ANY)
    except NotUnderstood:
        return None


@pytest.mark.usefixtures("no_collector")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions())
def test_no_expression_takes_more_than_its_steps_nor_long(text: str) -> None:
    expression, steps = understood(text), Steps(STEPS_MAX)
    if expression is not None:
        began_s = thread_s()
        with suppress(Failed):
            expression.value(JOB, steps)
        assert steps.left >= 0
        assert thread_s() - began_s < WIDE_S, text


SMALL = {**JOB, "argument": {"l": [0, 1, 1.0, "a", True, None, [1], {"a": 1}, -7], "s": "aé", "m": {"b": [2]}}}
ENVIRONMENT = cel.NewEnv(variables={"job": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})


@settings(max_examples=60, deadline=None)
@given(expressions())
def test_its_value_is_what_the_library_has(text: str) -> None:
    expression = understood(text)
    if expression is None:
        return
    theirs = ENVIRONMENT.compile(expression.text).eval(ENVIRONMENT.Activation({"job": SMALL}))
    ours: Any = None
    failed = ""
    try:
        ours = expression.value(SMALL)
    except TooLong:
        return
    except Failed as error:
        failed = str(error)
    assert bool(failed) == (theirs.type().name() == "ERROR"), (text, failed, ours, theirs.value())
    assert failed or repr(plain(theirs)) == repr(ours), text


def plain(value: Any) -> Any:
    """What the library answers, as values of Python."""
    found = value.value() if callable(getattr(value, "value", None)) else value
    if isinstance(found, dict):
        return {plain(key): plain(one) for key, one in found.items()}
    return [plain(one) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize(
    "text",
    [
        f"{LIST}.matches({LIST}2)",
        f"{LIST}.matches('a' + {LIST})",
        f"{LIST}.matches('(((a?){{10}}){{10}}){{10}}')",
        rf"{LIST}.matches('a\x7b200\x7d')",
        rf"{LIST}.matches('a\173200\175')",
        rf"{LIST}.matches(r'(\pL.?){{20}}')",
        rf"{LIST}.matches(r'[[:alpha:]\pL]{{50}}')",
    ],
)
def test_a_pattern_that_may_take_long_is_refused(text):
    """One with a thousand places takes a second of a job's 16 KiB, and one that comes with a job is anything."""
    with pytest.raises(NotUnderstood, match=r"matches|places"):
        Expression(text, ("BOOL",))


@pytest.mark.parametrize(
    "text",
    [
        "job.name.matches('^[a-z]+-[0-9]{4}$')",
        r'job.argument.at.matches( r"^\d{4}-\d{2}-\d{2}T" )',
        r"job.argument.url.matches('^https://[^/]+\\.example\\.com/') && !job.name.matches('^eu')",
        "job.name == 'matches' || job.argument[\"matches\"] == 1",
        "job.argument.id.matches('^[0-9a-f]{64}$')",
    ],
)
def test_what_people_write_is_not(text):
    Expression(text, ("BOOL",))


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("", 0),
        ("^[0-9]{4}-[0-9]{2}$", 9),
        ("a{10}{10}", 100),
        ("((ab){3}c){2}", 14),
        ("x{2,}y{,9}", 7),
        (r"\{30}|[]a{9}]", 5),
        (")){3}", 4),
        ("{3}", 0),
        (r"\pL{3}", 80),
        ("[A-Za-z0-9_-]{43}", 43),
        ("[" + "ab" * 24 + "]{3}", 15),
    ],
)
def test_places_are_counted_as_often_as_they_are_repeated(pattern, places):
    assert places_of(pattern) == places


@pytest.mark.parametrize(
    ("text", "is_hinted"),
    [
        ('job.name = "y"', True),
        ('job.name="y"', True),
        ('job.name == "=" && job.priority = 3', True),
        ("job.name =", True),
        ("job.name === 'y'", True),
        ("job.name & 'y'", False),
        ("job.name == ", False),
    ],
)
def test_one_equals_sign_is_told_of_two(text, is_hinted):
    with pytest.raises(NotUnderstood) as raised:
        Expression(text, ("BOOL",))
    assert str(raised.value).endswith("; did you mean ==?") is is_hinted


@pytest.mark.parametrize(
    "text",
    [
        "job.nam == 'a'",
        "has(job.nam)",
        "job . nam == 'a'",
        "job['nam'] == 'a'",
        "true || job.\nnam > 1",
        "'job.name' == job.nam",
    ],
)
def test_a_field_that_no_job_has_is_refused(text):
    with pytest.raises(NotUnderstood, match="no field 'nam' here; did you mean 'name'") as raised:
        Expression(text, ("BOOL",))
    assert text[raised.value.offset :].startswith("nam")


@pytest.mark.parametrize(
    "text",
    [
        "job.argument.nam == 'a'",
        "job.argument.job.nam == 1",
        "job.argument['nam'] == 1",
        "job.name == 'job.nam'",
        'job.name == "it\'s job.nam"',
        "job.name == '''job.nam'''",
        "true // job.nam",
        "job.argument . job . nam == 1",
    ],
)
def test_what_only_looks_like_one_is_not(text):
    Expression(text, ("BOOL",))
