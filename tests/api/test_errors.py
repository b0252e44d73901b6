"""GET /v1/errors: failures that a person would call the same are one group, and one filter means just these."""

from urllib.parse import urlencode

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
