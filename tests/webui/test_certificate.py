"""The UI's certificate: new files are used, and unusable ones are not."""

import signal
import ssl
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import trustme
from structlog.testing import capture_logs

from jqd.domain.errors import ConfigError
from jqd.webui.certificate import Certificate
from tests.live.harness import wait_for
from tests.webui.conftest import NOBODY, UiProcess


class Files:
    """A certificate and its key, which may be replaced."""

    def __init__(self, base: Path) -> None:
        self.cert, self.key = base / "cert.pem", base / "key.pem"

    def renew(self) -> ssl.SSLContext:
        """By those of another authority. Returns a context that trusts only this one."""
        ca, context = trustme.CA(), ssl.create_default_context()
        ca.configure_trust(context)
        context.set_alpn_protocols(["h2", "http/1.1"])
        made = ca.issue_cert("localhost", "127.0.0.1")
        self.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(self.key))
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def trusts(client: ssl.SSLContext, server: ssl.SSLContext) -> bool:
    """Whether the client accepts the certificate of a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (ours, theirs):
            try:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
            except ssl.SSLError:
                return False
    return ours.selected_alpn_protocol() == "h2"


def made(files: Files) -> Certificate:
    return Certificate(files.cert, files.key, ["h2"], "ECDHE+AESGCM")


def test_new_files_are_used_by_the_context_that_serves_and_torn_ones_are_not(files: Files) -> None:
    first = files.renew()
    certificate = made(files)
    serves = certificate.context
    assert trusts(first, serves)
    second = files.renew()
    whole = files.key.read_bytes()
    files.key.write_bytes(whole[:100])
    with capture_logs() as lines:
        for _ in range(2):
            certificate.look()
        assert (trusts(first, serves), trusts(second, serves)) == (True, False)
        files.key.unlink()
        certificate.look()
        files.key.write_bytes(whole)
        for _ in range(2):
            certificate.look()
    assert (trusts(first, serves), trusts(second, serves)) == (False, True)
    assert [line["event"] for line in lines] == ["webui.certificate_unusable"] * 2 + ["webui.certificate"]
    assert ["key.pem" in line["error"] for line in lines[:2]] == [True] * 2


def test_files_that_cannot_be_used_at_the_start_are_refused(files: Files) -> None:
    files.renew()
    files.cert.unlink()
    with pytest.raises(ConfigError, match=r"cert.pem cannot be read"):
        made(files)


def test_a_hangup_has_a_new_certificate_read_and_ends_nothing(files: Files, tmp_path: Path) -> None:
    first = files.renew()
    args = ["--url", NOBODY, "--certificate", str(files.cert), "--key", str(files.key)]
    with UiProcess(tmp_path / "ui.log", *args) as ui:

        def answers(context: ssl.SSLContext) -> bool:
            try:
                return httpx2.get(f"{ui.url}/login", verify=context, timeout=20).status_code == 200
            except httpx2.ConnectError:
                return False

        assert answers(first)
        second = files.renew()
        ui.child.send_signal(signal.SIGHUP)
        wait_for(lambda: answers(second), "the new certificate is not used")
        assert not answers(first)
        assert ui.stop() == 0
