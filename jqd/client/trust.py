"""Which certificates are trusted, and the errors of TLS to a daemon."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from jqd.client.environ import trust_file

NOT_ITS_NAME = (62, 64)  # of OpenSSL's X509_V_ERR: host name mismatch, address mismatch
NOT_ITS_DAY = (9, 10)  # not yet valid, has expired
SHOWN_NONE = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA")  # the answers to who shows no good one
PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")  # what OpenSSL calls an answer without TLS


def trusted() -> ssl.SSLContext:
    """Return the trusted certificates: the system's authorities, or those that SSL_CERT_FILE or SSL_CERT_DIR names."""
    return ssl.create_default_context()


def trusted_at(urls: Sequence[str]) -> ssl.SSLContext:
    """Return the same for these URLs: none where none uses TLS, for loading them takes time."""
    return trusted() if any(url.startswith("https:") for url in urls) else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def trouble_of_tls(url: str, error: BaseException) -> str | None:
    """Return the message when TLS is why a daemon was not reached; None when it is not.

    Trying again will not mend it.
    """
    failed = _by_tls(error)
    if isinstance(failed, ssl.SSLCertVerificationError):
        why = failed.verify_message.rstrip(".")  # OpenSSL ends some of them so
        return f"a daemon answers at {url}, but its certificate is not trusted here: {why}. {_mend(failed)}"
    if failed is not None and failed.reason in PLAIN:
        return f"what answers at {url} speaks no TLS: use http://{url.partition('://')[2]}"
    return no_certificate(url, error)


def no_certificate(url: str, error: BaseException) -> str | None:
    """Return the message where the daemon wants a client certificate, also if something was sent by then."""
    failed = _by_tls(error)
    if failed is None or failed.reason not in SHOWN_NONE:
        return None
    return f"the daemon at {url} asks for a certificate (http.tls_clients), and none that it trusts is shown from here"


def _mend(failed: ssl.SSLCertVerificationError) -> str:
    if failed.verify_code in NOT_ITS_NAME:
        return "Use the name that the certificate has"
    if failed.verify_code in NOT_ITS_DAY:
        return (
            "The daemon needs a certificate that is valid today (http.tls_cert), unless a clock is wrong, here or there"
        )
    described = trust_file()
    if described and not Path(described).is_file():
        return f"SSL_CERT_FILE names {described}, and there is no such file"
    return "Name the file of the authority that signed it in SSL_CERT_FILE"


def _by_tls(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error that broke this call itself; its context is what the caller was handling before."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause if isinstance(cause, ssl.SSLError) else None
