"""`jqd ui`: serves the web UI. It imports nothing of the daemon, which need not be installed."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from jqd.cli.common import Flag, set_log, worded
from jqd.cli.exits import Exit
from jqd.client import daemon_urls
from jqd.client.environ import checked_urls, daemon_token
from jqd.domain.lossy_stream import make_lossy
from jqd.webui.config import BIND_DEFAULT, UiConfig
from jqd.webui.serve import serve

Several = Annotated[list[str] | None, Parameter(negative="")]


async def ui(
    *,
    url: Several = None,
    bind: str = BIND_DEFAULT,
    token: Annotated[str | None, Parameter(show_default=False)] = None,
    host: Several = None,
    certificate: Path | None = None,
    key: Path | None = None,
    public_url: str = "",
    insecure: Flag = False,
    log_level: str = "warning",
) -> int:
    """Serve the web UI, for a daemon or for several of one store. Ctrl-C stops it.

    People log in with their own tokens. If the daemon requires no token and the UI listens on loopback, nobody logs in.

    Parameters
    ----------
    url
        URL of a daemon; may be given several times. Else JQD_URL, else http://127.0.0.1:7420.
    bind
        HOST:PORT to listen on; port 0 takes any free one.
    token
        Token whose rights everybody has, so that nobody has to log in; on loopback only. Else JQD_TOKEN.
    host
        Host name by which browsers may call the UI, besides IP addresses and localhost; may be given several times.
    certificate
        File with the certificate in PEM; with it the UI speaks TLS.
    key
        File with the key of the certificate.
    public_url
        URL of the UI for browsers, if it is behind a proxy that ends TLS: https://queue.example.
    insecure
        Allow use without a login also from the network.
    log_level
        debug, info, warning or error.
    """
    make_lossy("stdout", "stderr")
    set_log(log_level, "auto")
    with worded():
        config = UiConfig(
            urls=checked_urls([each for given in url or daemon_urls() for each in given.split(",")]),
            bind=bind,
            token=token or (None if url else daemon_token()),
            certificate=certificate,
            key=key,
            hosts=host or (),
            insecure=insecure,
            public_url=public_url,
        )
        await serve(config, ready=lambda at: print(f"jqd ui is ready at {at}", flush=True))
    return Exit.DONE
