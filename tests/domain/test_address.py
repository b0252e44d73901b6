"""Host and port: what is written is read, what is read is written."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.address import PORT_MAX, Address, ip_of, is_http, is_loopback, parse

HOSTS = st.ip_addresses().map(str) | st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
PORTS = st.integers(0, PORT_MAX)


@given(HOSTS, PORTS)
def test_an_address_comes_back_from_its_text(host: str, port: int) -> None:
    at = Address(host, port)
    assert parse(str(at)) == at
    assert is_http(f"http://{at}/") == (port != 0)


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with contextlib.suppress(ValueError):  # any other error would be an internal error
        assert parse(str(parse(text))) == parse(text)
    assert is_http(text) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "a",
        "a:",
        "a:b",
        "a:-1",
        "a:65536",
        "a:1:2",
        ":1:2",
        "[a]:1",
        "[::1:2",
        "::1]:2",
        "a\tb:1",
        "u@a:1",
        "a:١",
        "[]:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not host:port; write one like 127\.0\.0\.1:7420"):
        parse(text)


def test_ipv6_with_and_without_brackets_and_with_a_zone() -> None:
    assert parse("::1:7420") == parse("[::1]:7420") == Address("::1", 7420)
    assert parse("[fe80::1%eth0]:7420").host == "fe80::1%eth0"
    assert str(ip_of("[fe80::1%eth0]")) == "fe80::1"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_only_this_machine_reaches_it(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "jqd", "localhost.example", "0.0.0.0", "::", "10.0.0.1", "128.0.0.1"])
def test_others_may_reach_it(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "url", ["", "a", "ftp://a", "http://", "http://:1", "http://a:0", "http://a:99999", "http://[::1"]
)
def test_what_cannot_be_asked(url: str) -> None:
    assert not is_http(url)
