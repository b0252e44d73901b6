"""A certificate, made once."""

import ssl
from pathlib import Path

import pytest
import trustme

Certificate = tuple[Path, Path]


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def certificate(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Of localhost, and its key."""
    place = tmp_path_factory.mktemp("tls")
    made = ca.issue_cert("localhost")
    cert, key = place / "cert.pem", place / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    made.private_key_pem.write_to_path(str(key))
    return cert, key


@pytest.fixture
def authority(ca: trustme.CA) -> ssl.SSLContext:
    """A client that believes it."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context
