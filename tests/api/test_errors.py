"""GET /v1/errors: failures that a person would call the same are one group, and one filter means just these."""

from urllib.parse import urlencode

from jqd.domain.dates import iso
from jqd.domain.job import Fate
from jqd.domain.tenant import annotate
from jqd.service import listing
from tests.api.edge import JSON
from tests.api.test_bulk import all_of, failing
from tests.api.test_bulk import edge as edge  # a fixture


async def test_failures_that_differ_in_numbers_and_ids_are_one_group_and_can_be_acted_on_as_such(edge):
    for number in (1, 2, 2, 33):
        await failing(edge, f"no user {number} in 'db{number}'")
    edge.clock.advance(3_600)
    newest = await failing(edge, "no user 4 in 'db4'")
    await failing(edge, "no user at all")
    first, _ = (await edge.call("GET", "/v1/errors", accept=JSON)).body["errors"]
    assert (first["pattern"], first["error"]) == ("no user … in '…'", "no user 4 in 'db4'")
    assert (first["count"], first["last_hour"], first["job_id"]) == (5, 1, newest)
    assert first["texts"][0] == {"error": "no user 2 in 'db2'", "count": 2}
    assert len(first["texts"]) == 4
    for like in (first["pattern"], "no user 99 in 'x'"):
        assert await all_of(edge, "/v1/jobs/retry", {"error_like": like, "dry_run": True}) == (5, 0, 1)
        told = await edge.call("GET", "/v1/jobs?" + urlencode({"error_like": like, "name": "mail"}), accept=JSON)
        assert len(told.body["jobs"]) == 5
    assert await all_of(edge, "/v1/jobs/retry", {"error_is": "no user 2 in 'db2'", "dry_run": True}) == (2, 0, 1)
    assert await all_of(edge, "/v1/jobs/retry", {"error_like": "no user", "dry_run": True}) == (0, 0, 1)


async def test_a_reason_with_many_texts_keeps_few_of_them(edge, monkeypatch):
    monkeypatch.setattr(listing, "TEXTS_MAX", 3)
    for number in range(6):
        await failing(edge, f"no user {number}")
    (row,) = (await edge.call("GET", "/v1/errors", accept=JSON)).body["errors"]
    assert (row["count"], [text["count"] for text in row["texts"]]) == (6, [1, 1, 1])


async def test_failures_are_grouped_by_their_last_line(edge):
    first = edge.clock.wall_ms()
    for number in range(5):
        await failing(edge, f"Traceback {number}\nKeyError: 'x'\n\n")
        edge.clock.advance(60)
    last = await failing(edge, "KeyError: 'x'", job_id="own")
    await failing(edge, "KeyError: 'x'", name="pdf")
    await failing(edge, "", Fate.RETRY)
    told = (await edge.call("GET", "/v1/errors", accept=JSON)).body
    assert [(row["name"], row["error"], row["count"]) for row in told["errors"]] == [
        ("mail", "KeyError: 'x'", 6),
        ("pdf", "KeyError: 'x'", 1),
    ]
    assert (told["others"], told["looked"], told["cursor"]) == (0, 7, "")
    row = told["errors"][0]
    assert (row["since"], row["latest"], row["job_id"]) == (iso(first), iso(edge.clock.wall_ms()), last)
    (row,) = (await edge.call("GET", "/v1/errors?state=retrying", accept=JSON)).body["errors"]
    assert row["error"] == '{"code": 0}', "without a message its error says what it was"
    assert (await edge.call("GET", "/v1/errors?name=none", accept=JSON)).body["errors"] == []
    other = await failing(edge, "KeyError: 'x' of another", Fate.FAILED, name="pdf")
    just = {"name": "pdf", "error_is": "KeyError: 'x'", "dry_run": True}
    assert await all_of(edge, "/v1/jobs/retry", just) == (1, 0, 1), "no other line that has those words, too"
    told = await edge.call("GET", "/v1/jobs?" + urlencode({"error_is": "KeyError: 'x' of another"}), accept=JSON)
    assert [job["job_id"] for job in told.body["jobs"]] == [other]


async def test_reasons_and_names_are_told_of_each_tenant(edge):
    """And what a filter finds is what it changes: for who sees all, of all tenants."""
    for tenant, times in (("", 1), ("acme", 2), ("blue", 3)):
        for _ in range(times):
            told = await edge.call("POST", "/v1/jobs", {"name": "mail"}, headers={"jqd-tenant": tenant})
            assert told.status == 201
            await edge.apply()
            await edge.end(*await edge.claim(annotate(tenant, "mail"), limit=1), Fate.DEAD, message="no paper")
    told = (await edge.call("GET", "/v1/errors?name=mail", accept=JSON)).body["errors"]
    assert [(row.get("tenant"), row["name"], row["count"]) for row in told] == [
        ("blue", "mail", 3), ("acme", "mail", 2), (None, "mail", 1),
    ]  # fmt: skip
    just = {"name": "mail", "error_is": "no paper", "dry_run": True}
    for headers, jobs in (({}, 6), ({"jqd-tenant": "*"}, 6), ({"jqd-tenant": ""}, 1), ({"jqd-tenant": "acme"}, 2)):
        told = await edge.call("POST", "/v1/jobs/retry", just, headers=headers, accept=JSON)
        assert told.body["matched"] == jobs, headers


async def test_rare_reasons_are_counted_and_a_long_walk_goes_on(edge, monkeypatch):
    monkeypatch.setattr(listing, "GROUPS_MAX", 2)
    monkeypatch.setattr(listing, "STEP_JOBS", 4)
    monkeypatch.setattr(listing, "STEPS_MAX", 2)
    for letter in "abbcccdddd":
        await failing(edge, f"reason {letter}")
    first = (await edge.call("GET", "/v1/errors", accept=JSON)).body
    assert [(row["error"], row["count"]) for row in first["errors"]] == [("reason d", 4), ("reason c", 3)]
    assert (first["others"], first["looked"]) == (1, 8)
    rest = (await edge.call("GET", "/v1/errors?" + urlencode({"cursor": first["cursor"]}), accept=JSON)).body
    assert ([row["count"] for row in rest["errors"]], rest["others"], rest["cursor"]) == ([1, 1], 0, "")
