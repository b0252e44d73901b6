"""Which callbacks are signed how, and when nothing is sent to a host."""

import base64
import hashlib
import hmac
import random

import pytest

from jqd.runner.callbacks import RECEIVERS_MAX, REST_MAX_S, Receivers, callback_worker, message_id, secret_of
from jqd.runner.ssrf import AddressPolicy, SsrfGuard
from jqd.runner.worker import takes_type

SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"


def test_a_host_that_does_not_answer_rests_longer_each_time_until_it_answers() -> None:
    receivers = Receivers(random.Random(1))
    assert receivers.wait_s(("", "a:1"), 0.0) <= 0
    receivers.failed(("", "a:1"), 0.0)
    first_s = receivers.wait_s(("", "a:1"), 0.0)
    receivers.failed(("", "a:1"), 0.1)  # one that was under way with the first
    assert receivers.wait_s(("", "a:1"), 0.0) == first_s
    assert receivers.wait_s(("", "b:1"), 0.0) <= 0
    assert receivers.wait_s(("acme", "a:1"), 0.0) <= 0, "what kept one tenant from it may be its own"
    now_s = 0.0
    for _ in range(20):
        now_s += receivers.wait_s(("", "a:1"), now_s)
        receivers.failed(("", "a:1"), now_s)
    assert REST_MAX_S / 2 < receivers.wait_s(("", "a:1"), now_s) < REST_MAX_S * 1.5
    receivers.answered(("", "a:1"))
    assert receivers.wait_s(("", "a:1"), now_s) <= 0


def test_only_so_many_hosts_are_remembered() -> None:
    receivers = Receivers(random.Random(1))
    for number in range(RECEIVERS_MAX + 1):
        receivers.failed(("", f"{number}:1"), 0.0)
    assert receivers.wait_s(("", "0:1"), 0.0) <= 0
    assert receivers.wait_s(("", f"{RECEIVERS_MAX}:1"), 0.0) > 0


def test_a_tenants_secret_is_made_of_the_daemons_and_tells_nothing_of_it() -> None:
    made = hmac.digest(b"k" * 32, b"acme", hashlib.sha256)
    assert secret_of("acme", SECRET) == f"whsec_{base64.b64encode(made).decode()}"
    assert secret_of("", SECRET) == SECRET
    assert callback_worker("acme", SECRET).secrets == (secret_of("acme", SECRET),)
    assert callback_worker("acme", "").secrets == ()


def test_a_message_has_one_id_however_often_it_is_sent() -> None:
    assert message_id("http://a/", b"1") == message_id("http://a/", b"1")
    assert len({message_id("http://a/", b"1"), message_id("http://b/", b"1"), message_id("http://a/", b"2")}) == 3


@pytest.mark.parametrize(
    ("jobs", "jobtype"),
    [(None, "jqd.callback"), (("acme\x1f",), "acme\x1fjqd.callback"), (("mail",), "jqd.callback")],
)
def test_no_worker_takes_callbacks_that_takes_all(jobs: tuple[str, ...] | None, jobtype: str) -> None:
    assert not takes_type(jobs, jobtype)
    assert takes_type(callback_worker("acme" if "\x1f" in jobtype else "", "").jobs, jobtype)


@pytest.mark.parametrize(
    ("address", "is_public", "is_listed"),
    [
        ("93.184.216.34", True, True),
        ("10.1.2.3", False, True),
        ("::ffff:10.1.2.3", False, True),
        ("64:ff9b::a01:203", False, True),
        ("10.2.0.1", False, False),
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("169.254.169.254", False, False),
        ("0.0.0.0", False, False),
    ],
)
def test_callbacks_go_to_public_addresses_and_listed_networks(address: str, is_public: bool, is_listed: bool) -> None:
    for workers in ((), ("10.0.0.0/8", "127.0.0.0/8")):
        assert (SsrfGuard(workers).why_not(address, AddressPolicy.CALLBACK) is None) == is_public
        listed = SsrfGuard(workers, ("10.1.0.0/16", "169.254.0.0/16"))
        assert (listed.why_not(address, AddressPolicy.CALLBACK) is None) == is_listed
