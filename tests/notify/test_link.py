"""The link of a notice means one tenant, also where that is none: names are each tenant's own."""

import pytest

from jqd.notify.render import body
from tests.notify.test_mail import notice, row


@pytest.mark.parametrize(("name", "whose"), [("mail", "tenant=&"), ("acme\x1fmail", "tenant=acme&")])
def test_the_link_names_the_tenant(name: str, whose: str) -> None:
    assert f"errors?{whose}name=mail".encode() in body(notice(row(name, "away")), "https://jqd.example.org/errors")
