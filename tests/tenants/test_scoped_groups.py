"""A group of jobs that a token is not for does not exist for it."""

from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole


async def test_a_token_for_other_jobtypes_finds_no_such_group(edge: Whole) -> None:
    token = (await make(edge, "push", scopes=["mail"]))["token"]
    for name, group in (("pay", "payroll"), ("mail", "letters")):
        told = await call(edge, ROOT, "POST", "/v1/jobs", {"name": name, "group": group})
        assert told.status == 201, told.body
    await edge.apply()
    seen = [(await call(edge, token, "GET", f"/v1/groups/{group}")).status for group in ("payroll", "letters", "none")]
    assert seen == [404, 200, 404]
    assert (await call(edge, ROOT, "GET", "/v1/groups/payroll")).status == 200
