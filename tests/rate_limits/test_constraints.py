"""Which queue a job waits in: by what matches it, what it costs, the value of a key; and what expressions may do."""

from itertools import product
from typing import Any, cast
from unittest.mock import MagicMock

import msgspec
import pytest
from msgspec import Raw

from jqd.domain.job import Job
from jqd.domain.queue_name import BETWEEN, items_of, limits
from jqd.domain.settings import CONSTRAINT, NIL, Setting, SettingTable
from jqd.rate_limits.constraints import ITEMS_MAX, Constraint, Constraints, Rate, body_of, with_digest
from jqd.rate_limits.matcher import ARGUMENT_BYTES_MAX, STEPS_MAX, Expression, NotUnderstood, only_names
from jqd.rate_limits.operators import FUNCTIONS, Failed, Steps


def said(*ones: tuple[str, Constraint]) -> Constraints:
    settings = SettingTable()
    known = Constraints(settings)
    settings.take([Setting(CONSTRAINT, name, 1, 0, Raw(body_of(with_digest(name, one)))) for name, one in ones])
    return known


def job(argument: Any = None, jobtype: str = "mail", **fields: Any) -> Job:
    packed = argument if isinstance(argument, bytes) else msgspec.msgpack.encode(argument)
    return Job("01", jobtype, packed, **fields)


def test_a_queue_names_what_matches_its_cost_and_its_key() -> None:
    known = said(
        ("all", Constraint("true", concurrency=1)),
        ("mail", Constraint('job.name == "mail" && job.priority < 5', rate=Rate(9, 1.0), cost="job.argument.n")),
        ("tag", Constraint('"bulk" in job.tags', concurrency=1, key="job.argument.who")),
    )
    queue = known.queue_of(job({"n": 3, "who": "a"}, tags=("bulk",)))
    assert items_of(queue) == [("all", 1, ""), ("mail", 3, ""), ("tag", 1, "=a")]
    assert known.is_current(queue)
    assert limits(queue)
    assert [one.name for one in items_of(known.queue_of(job({"n": 0}, priority=5)))] == ["all"]
    assert not known.is_current("")
    assert not known.is_current(f"{BETWEEN}1")
    assert said().queue_of(job()) == ""


@pytest.mark.parametrize(
    ("match", "names"),
    [
        (' job.name=="mail" ', ["mail"]),
        ("job.name == 'mail' && job.priority > 3", ["mail"]),
        ("""job.name in ["mail", 'a, b' ,"c"] && true""", ["mail", "a, b", "c"]),
        ('job.name in ["mail"] || true', None),
        ('job.name == "mail" && true ? true : true', None),
        ('job.name in ["mail"] == false', None),
        ('job.name in ["mail", job.argument.name]', None),
        ("job.name in []", None),
        ('job.name == "ma\\x69l"', None),
        ('job.name == "mail" != true', None),
    ],
)
def test_of_which_jobtypes_an_expression_can_be_true_is_known_where_it_is_plain(
    match: str, names: list[str] | None
) -> None:
    assert only_names(match) == names
    for name in ("mail", "a, b", "c", "other"):
        fields = {"name": name, "priority": 5, "argument": {"name": "other"}}
        assert not Expression(match, ("BOOL",)).value(fields, Steps(STEPS_MAX)) or names is None or name in names


def test_another_number_is_the_same_version_and_another_matcher_another() -> None:
    first = said(("a", Constraint("true", concurrency=1))).version
    assert said(("a", Constraint("true", concurrency=2))).version == first
    versions = {
        first,
        *(
            said((name, one)).version
            for name, one in [
                ("b", Constraint("true", concurrency=1)),
                ("a", Constraint("false", concurrency=1)),
                ("a", Constraint("true", concurrency=1, key="job.name")),
                ("a", Constraint("true", concurrency=1, on_error="pass")),
            ]
        ),
    }
    assert len(versions) == 5
    known = said(("a", Constraint("true", concurrency=1)))
    known_rules = SettingTable()
    gone = Constraints(known_rules)
    known_rules.take([Setting(CONSTRAINT, "a", 1, 0, Raw(body_of(known.known["a"].constraint)))])
    known_rules.take([Setting(CONSTRAINT, "a", 2, 0, Raw(NIL))])
    assert (gone.version, gone.known) == ("", {})


def test_equal_keys_are_equal_and_others_never() -> None:
    known = said(("k", Constraint("true", concurrency=1, key="job.argument")))
    texts = [
        "a",
        "=a",
        "1",
        "int:1",
        "=int:1",
        "bool:True",
        "float:1.5",
        "NoneType:None",
        "x" * 200,
        "x" * 201,
        "a\x1eb",
    ]
    values = [*texts, "!", 1, 1.5, True, None, 0, False, 2**63 - 1, 2.0**63, float("nan"), float("inf"), 1e308]
    queues = [known.queue_of(job(value)) for value in values]
    assert len(set(queues)) == len(values)
    for one, equal in ((1, 1.0), (0, -0.0), (0, 0.0), (-(2**63), -(2.0**63))):
        assert known.queue_of(job(one)) == known.queue_of(job(equal)), (one, equal)
    assert all(queue.count(BETWEEN) == 2 and len(queue) < 100 for queue in queues)


NAN, INF = float("nan"), float("inf")
NUMBERS = [0, 1, -1, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, NAN, INF, -INF, 1e308, 0.5, 2.0**63]
TEXTS = ["", "a", "1", "--5", "9" * 20, "9" * 25, "-", "nan", "1e999", "²", "\x00", b"", b"x"]
WHOLES: list[Any] = [[], [1], [NAN], [[1]], {}, {"a": 1}, {1: 2}, {True: 1}, {"a": NAN}]
OPERATIONS = [
    *(f"job.argument.x {operator} job.argument.y" for operator in ("==", "in", "<", ">=", "&&", "||")),
    *(f"job.argument.x {operator} job.argument.y == 1" for operator in "+-*/%"),
    *(f"job.argument.x.{function}(job.argument.y)" for function in ("contains", "startsWith", "endsWith")),
    *(f"{function}(job.argument.x) == job.argument.y" for function in ("-", "size", "int", "double", "string", "dyn")),
    *(f"job.argument.x.{loop}(v, v == job.argument.y)" for loop in ("all", "exists", "exists_one")),
    "job.argument.x[job.argument.y] == 1",
    "[1][job.argument.x / job.argument.y] == 1",
    "job.argument.x.map(v, v + 1) == job.argument.y",
    "job.argument.x.matches('a+')",
    "{job.argument.x: 1} == job.argument.y",
    "has(job.argument.x.a)",
    "job.argument.x ? true : !job.argument.y",
]


@pytest.mark.parametrize("text", OPERATIONS)
def test_whatever_a_job_has_an_expression_is_true_or_not_or_fails_on_it(text: str) -> None:
    """Any other exception would end the daemon, and end it again at the same job whenever it starts."""
    expression = Expression(text, ("BOOL",))
    values = [None, True, False, *NUMBERS, *TEXTS, *WHOLES]
    for x, y in product(values, values):
        why = ""
        try:
            assert expression.value({"argument": {"x": x, "y": y}}) in (True, False)
        except Failed as error:
            why = str(error)
        assert "internal error" not in why, (x, y)


def test_an_operator_that_breaks_off_fails_on_that_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ZeroDivisionError, OverflowError, ValueError, TypeError, KeyError, IndexError, UnicodeEncodeError):
        given = ("utf-8", "x", 0, 1, "why") if error is UnicodeEncodeError else ("why",)
        broken = MagicMock(side_effect=error(*given))
        monkeypatch.setitem(cast("dict[Any, Any]", FUNCTIONS), ("size", 1), broken)
        known = said(("r", Constraint(f"size(job.name) == 4 // {error.__name__}", concurrency=1)))  # compiled anew
        assert items_of(known.queue_of(job())) == [("r", None, "!")]
        assert f"match: internal error: {error.__name__}: " in known.known["r"].error


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ({}, "cost: job.argument.n: there is no field n"),
        (None, "cost: job.argument.n: NULL_TYPE has no fields"),
        ({"n": "x"}, "cost: job.argument.n is STRING, not INT"),
        ({"n": -1}, "cost: job.argument.n is -1, and must be 0 or more"),
        ({"n": 10}, "cost: job.argument.n is 10, more than limit and burst, 9, allow at all"),
        (b"\xc1", "cannot be read"),
        (b"\xa2\xff\xff", "cannot be read"),
        ({"n": list(range(ITEMS_MAX + 1))}, f"more than {ITEMS_MAX} items"),
        (b"\xc5\xff\xff" + bytes(65535), f"more than {ARGUMENT_BYTES_MAX} bytes"),
    ],
)
def test_a_matcher_that_fails_holds_that_job_or_lets_it_pass(argument: Any, why: str) -> None:
    held = Constraint("true", rate=Rate(9, 1.0), cost="job.argument.n")
    known = said(("r", held))
    assert items_of(known.queue_of(job(argument))) == [("r", None, "!")]
    assert (known.known["r"].failed, why in known.known["r"].error) == (1, True), known.known["r"].error
    (complaint,) = known.complaints()
    assert complaint.startswith("constraint 'r' fails on jobs, and holds them up")
    assert why in complaint
    free = said(("r", msgspec.structs.replace(held, on_error="pass")))
    assert not limits(free.queue_of(job(argument)))
    assert free.complaints() == []


@pytest.mark.parametrize(
    ("constraint", "argument", "why"),
    [
        (Constraint("job.argument.n", concurrency=1), {"n": 5}, "match: job.argument.n is INT, not BOOL"),
        (
            Constraint("true", concurrency=1, key="job.argument.to"),
            {"to": []},
            "key: job.argument.to is a LIST, not ",
        ),
        (
            Constraint("true", concurrency=1, key="job.argument.to.id"),
            {"to": {}},
            "key: job.argument.to.id: there is no field id",
        ),
        (
            Constraint("true", concurrency=1, key="job.argument.to.id"),
            {},
            "key: job.argument.to.id: there is no field to",
        ),
        (
            Constraint("true", concurrency=1, key="job.argument.a.a"),
            {"a": {}},
            "key: job.argument.a.a: there is no field a",
        ),
        (
            Constraint("true", concurrency=1, key="job.argument['to']"),
            {},
            "key: job.argument['to']: there is no field to",
        ),
        (Constraint("true", concurrency=1, key=f"job.argument.{'k' * 200}"), {"k" * 200: []}, f"{'k' * 66}… is a LIST"),
        (Constraint("true", rate=Rate(9, 1.0), cost="1 / job.argument.n"), {"n": 0}, "cost: divide by zero"),
    ],
)
def test_why_it_fails_on_a_job_is_told_of_that_job_and_counts_for_nothing(
    constraint: Constraint, argument: Any, why: str
) -> None:
    known = said(("r", constraint))
    assert why in known.failure_of("r", job(argument)), known.failure_of("r", job(argument))
    assert (known.known["r"].failed, known.known["r"].matched, known.known["r"].error) == (0, 0, "")
    assert known.failure_of("gone", job(argument)) == ""
    elsewhere = said(("acme\x1fr", constraint))
    assert elsewhere.failure_of("acme\x1fr", job(argument)) == "", "it does not concern that job"


@pytest.mark.parametrize("argument", [{}, None, 5, [1], {"to": {}}, {"to": 5}])
def test_a_job_without_a_field_that_match_names_is_not_meant(argument: Any) -> None:
    """Or one constraint on jobs of one kind would hold up those of all others."""
    known = said(("r", Constraint('job.argument.to.url.startsWith("https:")', concurrency=1)))
    assert not limits(known.queue_of(job(argument)))
    assert known.known["r"].failed == 0
    assert limits(known.queue_of(job({"to": {"url": "https://a"}})))
    assert limits(known.queue_of(job({"to": {"url": 5}}))), "it has one, and no text: it is held"


def test_a_tenant_limits_its_own_jobs_only() -> None:
    known = said(("acme\x1fa", Constraint("true", concurrency=1)), ("b", Constraint('job.tenant != ""', concurrency=1)))
    names = {
        who: [one.name for one in items_of(known.queue_of(job(jobtype=who)))]
        for who in ("mail", "acme\x1fmail", "o\x1fmail")
    }
    assert names == {"mail": [], "acme\x1fmail": ["acme\x1fa", "b"], "o\x1fmail": ["b"]}


@pytest.mark.parametrize("text", ["(" * 400 + "1" + ")" * 400, "x" * 2_000, "1 +", "1u == 2u"])
def test_what_would_take_long_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        Expression(text, ("BOOL",))


LONG = "job.argument.l.all(x, job.argument.l.all(y, true))"


def test_one_that_takes_long_fails_on_that_job_and_leaves_steps_to_those_of_others() -> None:
    known = said(
        *((f"long{n}", Constraint(LONG, concurrency=1)) for n in range(3)),
        ("short", Constraint("job.argument.l.size() < 2000", concurrency=1)),
        ("acme\x1flong", Constraint(LONG, concurrency=1, on_error="pass")),
        ("acme\x1fshort", Constraint("job.argument.l.size() < 2000", concurrency=1)),
    )
    large = job({"l": list(range(1000))})
    costs = {one.name: one.cost for one in items_of(known.queue_of(large))}
    assert costs == dict.fromkeys(("long0", "long1", "long2", "short")), "what they have together is used up"
    assert known.known["long0"].error == f"match: it takes more than {STEPS_MAX} steps"
    assert "others of these constraints left it" in known.known["short"].error
    assert known.failure_of("long2", large) == f"match: it takes more than {STEPS_MAX} steps"
    theirs = {one.name: one.cost for one in items_of(known.queue_of(job({"l": [*range(1000)]}, "acme\x1fmail")))}
    assert theirs == {**costs, "acme\x1fshort": 1}, "theirs lets it pass, and has steps of its own"
    assert {one.cost for one in items_of(known.queue_of(job({"l": [1]})))} == {1}
