"""Lines of the log as people read them."""

from jqd.domain.log import name_tenants
from jqd.domain.tenant import annotate


def test_a_name_is_told_as_its_tenant_wrote_it() -> None:
    sentence = f"no worker takes {annotate('acme', 'mail')}"
    event = {"event": "dispatch.batch", "jobtype": annotate("acme", "mail"), "count": 2, "error": sentence}
    told = {"event": "dispatch.batch", "jobtype": "mail", "count": 2, "error": sentence, "tenant": "acme"}
    assert name_tenants(None, "info", event) == told
    assert name_tenants(None, "info", {"jobtype": annotate("acme", "mail"), "tenant": "acme"})["jobtype"] == "mail"
    assert name_tenants(None, "info", {"jobtype": "mail"}) == {"jobtype": "mail"}
