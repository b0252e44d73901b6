"""Tells how to install an optional extra of this package.

Without extras jqd can only push jobs; the command line, a worker and a daemon each need an extra. The advice names the
source from which this jqd was installed, as pip recorded it (PEP 610), because a package index may not have it.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit

PACKAGE = "jqd"


def install_with(extra: str) -> str:
    """Return the shell command that adds an extra to this installation."""
    try:
        recorded = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None  # running from sources, without an installation
    origin = json.loads(recorded) if recorded else {}
    url = origin.get("url")
    if url is None:
        return f"pip install '{PACKAGE}[{extra}]'"
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{unquote(urlsplit(url).path)}[{extra}]'"
    vcs = origin.get("vcs_info", {}).get("vcs")
    return f"pip install '{PACKAGE}[{extra}] @ {vcs + '+' if vcs else ''}{url}'"
