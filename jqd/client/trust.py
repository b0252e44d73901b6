"""Which certificates the client trusts, and messages for TLS errors."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from jqd.client.environ import trust_file

NAME_MISMATCH = (62, 64)  # OpenSSL's X509_V_ERR codes: host name mismatch, address mismatch
NOT_VALID_NOW = (9, 10)  # X509_V_ERR: not yet valid, has expired
SHOWN_NONE = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA")  # alerts for a missing client certificate
PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")  # OpenSSL's names for an answer without TLS


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificate authorities, or those of SSL_CERT_FILE or
    SSL_CERT_DIR."""
    return ssl.create_default_context()


def trusted_at(urls: Sequence[str]) -> ssl.SSLContext:
    """Return the TLS context for these URLs. If no URL uses TLS, the context has no authorities, because loading them
    takes time."""
    return trusted() if any(url.startswith("https:") for url in urls) else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def trouble_of_tls(url: str, error: BaseException) -> str | None:
    """Return a message if TLS is the reason why a daemon could not be reached, so that trying again does not help; else
    None."""
    failed = _by_tls(error)
    if isinstance(failed, ssl.SSLCertVerificationError):
        why = failed.verify_message.rstrip(".")  # only some of OpenSSL's messages end with a full stop
        return f"a daemon answers at {url}, but its certificate is not trusted here: {why}. {_mend(failed)}"
    if failed is not None and failed.reason in PLAIN:
        return f"what answers at {url} speaks no TLS: use http://{url.partition('://')[2]}"
    return no_certificate(url, error)


def no_certificate(url: str, error: BaseException) -> str | None:
    """Return a message if the daemon requires a client certificate that was not sent; else None."""
    failed = _by_tls(error)
    if failed is None or failed.reason not in SHOWN_NONE:
        return None
    return f"the daemon at {url} asks for a certificate (http.tls_clients), and none that it trusts is shown from here"


def _mend(failed: ssl.SSLCertVerificationError) -> str:
    if failed.verify_code in NAME_MISMATCH:
        return "Use the name that the certificate has"
    if failed.verify_code in NOT_VALID_NOW:
        return (
            "The daemon needs a certificate that is valid today (http.tls_cert), unless a clock is wrong, here or there"
        )
    described = trust_file()
    if described and not Path(described).is_file():
        return f"SSL_CERT_FILE names {described}, and there is no such file"
    return "Name the file of the authority that signed it in SSL_CERT_FILE"


def _by_tls(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error behind an error: the first OSError among its causes. None if that is no error of TLS."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause if isinstance(cause, ssl.SSLError) else None
