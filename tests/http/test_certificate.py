"""The certificate of a door: read again when it was renewed, and what is said while something is wrong with it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.x509 import load_pem_x509_certificate

from jqd.domain.dates import iso, ms_of
from jqd.domain.errors import ConfigError
from jqd.http import Listener, ListenerConfig, bind
from jqd.http.tls import SOON_DAYS, dates_ms
from jqd.testing.clock import ManualClock
from tests.http.test_tls import ANSWER_S, LAST, echo, spoken
from tests.http.transports import Log

DAY_MS = 86_400_000
DATES = [
    datetime(1951, 2, 3, tzinfo=UTC),
    datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2051, 1, 1, tzinfo=UTC),
]


def issued(authority: trustme.CA, ends: datetime, age: float = 90) -> trustme.LeafCert:
    return authority.issue_cert("localhost", not_before=ends - timedelta(days=age), not_after=ends)


class Renewed:
    """A door whose certificate may be replaced."""

    def __init__(self, base: Path) -> None:
        self.ca, self.clock, self.log = trustme.CA(), ManualClock(), Log()
        self.files = base / "cert.pem", base / "key.pem"
        self.now = datetime.fromtimestamp(self.clock.wall_ms() // 1000, UTC)
        self.renew(30)
        self.listener = bind("127.0.0.1:0")
        self.door = Listener(echo, self.listener, ListenerConfig(certificate=self.files), self.log, clock=self.clock)

    def renew(self, days: float, age: float = 90) -> str:
        """By one of another authority, which ends so many days from now, `age` after it began. Returns when."""
        self.ca = trustme.CA()
        made = issued(self.ca, ends := self.now + timedelta(days=days), age)
        cert, key = self.files
        cert.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        key.write_bytes(made.private_key_pem.bytes())
        return iso(ms_of(ends))

    @property
    def complaint(self) -> str | None:
        return self.door.certificate.complaint

    def events(self, name: str) -> int:
        return [line["event"] for line in self.log.lines].count(name)


@pytest.fixture
def renewed(tmp_path: Path) -> Renewed:
    return Renewed(tmp_path)


def torn_cert(files: tuple[Path, Path]) -> None:
    files[0].write_bytes(files[0].read_bytes()[:100])


def torn_key(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:100])


def others_key(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())


def no_key(files: tuple[Path, Path]) -> None:
    files[1].unlink()


@pytest.mark.parametrize("broken", [torn_cert, torn_key, others_key, no_key])
@pytest.mark.parametrize("signalled", [True, False])
async def test_a_renewal_that_is_broken_is_said_until_it_is_whole(
    renewed: Renewed, broken: Callable[[tuple[Path, Path]], None], signalled: bool
) -> None:
    """At SIGHUP, and by itself: whoever renews it need not know whom to tell."""
    door, stopped, port = renewed.door, trio.Event(), renewed.listener.getsockname()[1]

    def look() -> None:
        if signalled:
            door.change(door.config)
        else:
            door.certificate.look()

    with trio.fail_after(ANSWER_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(door.serve, stopped.wait)
            before = renewed.ca
            assert renewed.complaint is None
            broken(renewed.files)
            for _ in range(2):
                if signalled:
                    with pytest.raises(ConfigError, match=r"http\.tls_"):
                        look()
                else:
                    look()
            assert renewed.events("http.certificate_unusable") == (0 if signalled else 1), "it is said once"
            said = renewed.complaint or ""
            assert said.startswith("http.tls_")
            assert all(str(file) in said for file in renewed.files if broken is not no_key)
            ends = iso(renewed.clock.wall_ms() + 30 * DAY_MS)
            assert said.endswith(f". The certificate that was read before goes on; it ends at {ends}")
            assert b"200 OK" in await spoken(port, before, LAST), "it goes on with what it had"
            renewed.renew(30)
            look()
            assert b"200 OK" in await spoken(port, renewed.ca, LAST)
            assert renewed.complaint is None
            stopped.set()


def test_each_fault_of_a_renewal_is_said(renewed: Renewed) -> None:
    with renewed.listener:
        for count, broken in enumerate((others_key, no_key), start=1):
            broken(renewed.files)
            renewed.door.certificate.look()
            assert renewed.events("http.certificate_unusable") == count


def test_an_end_is_said_two_weeks_before_and_once_in_the_log(renewed: Renewed) -> None:
    with renewed.listener:
        look = renewed.door.certificate.look
        for days, said in ((SOON_DAYS + 0.01, None), (SOON_DAYS, "ends within 14 days, at")):
            ends = renewed.renew(days)
            look()
            told = renewed.complaint
            assert told is None if said is None else told and said in told and ends in told and "cert.pem" in told
            look()
        renewed.clock.advance(SOON_DAYS * 86_400)
        look()
        assert f"ended, and clients refuse it, since {ends}" in (renewed.complaint or "")
        assert renewed.events("http.certificate_ends") == 1
        renewed.files[0].write_bytes(b"none")
        look()
        assert f"goes on; it ended at {ends}" in (renewed.complaint or "")


@pytest.mark.parametrize("signalled", [True, False])
def test_what_clients_would_refuse_today_waits_behind_what_they_believe(renewed: Renewed, signalled: bool) -> None:
    with renewed.listener:
        door, used = renewed.door, renewed.door.certificate.context
        kept = iso(renewed.clock.wall_ms() + 30 * DAY_MS)
        for days, age, said in (
            (-1, 90, "ended at"),
            (95, 90, f"is not valid before {iso(ms_of(renewed.now) + 5 * DAY_MS)}"),
        ):
            renewed.renew(days, age)
            if signalled:
                with pytest.raises(ConfigError, match=said):
                    door.change(door.config)
            door.certificate.look()
            assert door.certificate.context is used
            told = renewed.complaint or ""
            assert said in told
            assert told.endswith(f"The certificate that was read before goes on; it ends at {kept}")
        renewed.clock.advance(5 * 86_400)
        door.certificate.look()
        assert door.certificate.context is not used, "its day has come"
        assert renewed.complaint is None


def test_what_nobody_believes_yet_is_said_where_nothing_better_is_there(renewed: Renewed) -> None:
    with renewed.listener:
        renewed.clock.advance(31 * 86_400)
        renewed.renew(130)
        certificate = renewed.door.certificate
        certificate.look()
        begins = iso(ms_of(renewed.now) + 40 * DAY_MS)
        assert f"is not valid before {begins}, and clients refuse it" in (certificate.complaint or "")
        certificate.look()
        assert renewed.events("http.certificate_begins") == 1, "it is said once"
        renewed.clock.advance(9 * 86_400)
        assert certificate.complaint is None


def test_days_go_by_without_a_new_file(renewed: Renewed) -> None:
    with renewed.listener:
        look = renewed.door.certificate.look
        for days, count in ((15, 0), (2, 1), (10, 1)):
            renewed.clock.advance(days * 86_400)
            look()
            assert (renewed.events("http.certificate_ends"), renewed.complaint is None) == (count, count == 0)


@pytest.mark.parametrize("ends", DATES, ids=str)
def test_the_dates_are_read_as_others_read_it(ends: datetime) -> None:
    blob = issued(trustme.CA(), ends).cert_chain_pems[0].bytes()
    read = load_pem_x509_certificate(blob)
    assert dates_ms(blob.decode()) == (ms_of(read.not_valid_before_utc), ms_of(read.not_valid_after_utc))
    assert ms_of(read.not_valid_after_utc) == ms_of(ends)


def test_what_is_no_certificate_is_refused_with_a_reason() -> None:
    blob = issued(trustme.CA(), DATES[1]).cert_chain_pems[0].bytes().decode()
    head, *lines = blob.splitlines()
    for wrong in ("", "none", *(f"{head}\n{chr(10).join(lines[:kept])}\n-----END " for kept in range(len(lines) - 2))):
        with pytest.raises(ValueError, match=r"."):
            dates_ms(wrong)
