"""Serves the files of `static/`. The URL of each file has the hash of its content: browsers keep it for ever."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from quart import Response
from werkzeug.exceptions import NotFound

if TYPE_CHECKING:
    from jqd.webui.app import Ui

FOR_EVER = "public, max-age=31536000, immutable"  # the URL changes with the file
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HASH_CHARS = 16  # of a SHA-256: enough to tell versions of one file apart


class Asset(NamedTuple):
    body: bytes
    content_type: str
    url: str


@cache
def load_assets() -> dict[str, Asset]:
    """Read the files of `static/` once; return them by name."""
    found = {}
    for file in files("jqd.webui").joinpath("static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            body = file.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:HASH_CHARS]
            found[file.name] = Asset(body, TYPES[suffix], f"/static/{digest}/{file.name}")
    return found


def register(ui: "Ui") -> None:
    async def asset(digest: str, name: str) -> Response:
        found = load_assets().get(name)
        if found is None or found.url != f"/static/{digest}/{name}":
            raise NotFound
        return Response(found.body, content_type=found.content_type, headers={"cache-control": FOR_EVER})

    ui.app.add_url_rule("/static/<digest>/<name>", "asset", asset)
