"""The files of `static/`, served under the hash of what they hold, so that browsers keep them for ever."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HASH_CHARS = 16  # of a SHA-256: enough to tell versions of one file apart


class Asset(NamedTuple):
    body: bytes
    content_type: str
    url: str


def load_assets() -> dict[str, Asset]:
    """Return all that browsers may ask for, by name."""
    found = {}
    for file in files("jqd.webui").joinpath("static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            body = file.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:HASH_CHARS]
            found[file.name] = Asset(body, TYPES[suffix], f"/static/{digest}/{file.name}")
    return found
