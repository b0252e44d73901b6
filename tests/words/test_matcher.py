"""What an expression may not do, mostly in a loop: one of them held up a daemon for minutes."""

import pytest

from jqd.words.matcher import PLACES_MAX, Expression, NotUnderstood, places_in, places_of

LIST = "job.argument.l"
SLOW = [
    f"{LIST}.all(a, ({LIST} + {LIST}) != [])",
    f"{LIST}.all(a, a in job.tags)",
    f'{LIST}.all(a, job["argument"] != a)',
    f"{LIST}.all(a, 'q'.matches(a))",
    f"{LIST}.all(a, {LIST}.//x\nall(b, b == a))",
]


@pytest.mark.parametrize("text", SLOW)
def test_what_takes_long_for_each_value_is_refused(text):
    with pytest.raises(NotUnderstood):
        Expression(text, ("BOOL",))


@pytest.mark.parametrize("body", ["a == job.name", "a.startsWith('eu')", "a.size() < job.priority"])
def test_what_takes_a_moment_for_each_is_not(body):
    Expression(f"{LIST}.exists(a, {body})", ("BOOL",))


@pytest.mark.parametrize(
    "text",
    [
        f"{LIST}.matches({LIST}2)",
        f"matches({LIST}, 'a')",
        f"{LIST}.matches('a' + {LIST})",
        f"{LIST}.matches//x\n('a')",
        f"{LIST}.matches ('''a''')",
        f"{LIST}.matches('(((a?){{10}}){{10}}){{10}}')",
        rf"{LIST}.matches('a\x7b200\x7d')",
        rf"{LIST}.matches('a\173200\175')",
        rf"{LIST}.matches(r'(\pL.?){{20}}')",
        rf"{LIST}.matches(r'[[:alpha:]\pL]{{50}}')",
        " || ".join([f"{LIST}.matches('{'ab' * 10}')"] * 6),
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
    ("text", "places"),
    [
        ("", 0),
        ("job.argument.id == 5", 0),
        ("job.argument.s == '" + "a" * 600 + "'", 2),
        ("job.name.matches('^a{9}$') || job.tags.exists(t, t == 'x')", 11),
        ("job.argument.ids.exists(id, id == 5)", 3),
        ("job.argument.ids.exists(id, id == " + "5" * 200 + ")", 8),
        ("job.argument.ids.filter(id, id == 5).size() > 1", 41),
        ("job.argument.ids.map(id, [" + "id," * 300 + "id]).size() > 1", 77),
        ("job.argument.s.matches('a{40}') || job.argument.ids.exists(id, id == 5)", 44),
        ("job.argument.s.matches(job.argument.t)", PLACES_MAX),
    ],
)
def test_what_else_takes_long_counts_as_places(text, places):
    """A hundred constraints that make lists of lists took 17 s of one job, without any pattern."""
    assert places_in(text) == places


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
    Expression(text, ("BOOL",), bounded=False)  # what was said before holds on


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
