"""Matches paths to routes. A path is split at slashes before it is percent-decoded, because a pusher's own job id may
contain a slash, written as %2F."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from jqd.api.route import Route

Found = dict[str, tuple[Route, dict[str, str]]]
"""Method → (its route, path parameter → value)."""

_LEAF = ()  # key of a node's routes; no piece of a path is equal to this or to _ANY
_ANY = None  # key of the node for any piece


class RouteTable:
    """Routes as a tree, with one level for each part of a path between slashes; `<name>` stands for any part that is
    not empty."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root: dict[Any, Any] = {}
        for route in routes:
            node = self._root
            pieces = route.path.split("/")[1:]
            for piece in pieces:
                node = node.setdefault(_ANY if piece.startswith("<") else piece, {})
            names = [piece.strip("<>") for piece in pieces if piece.startswith("<")]
            node.setdefault(_LEAF, {})[route.method] = (route, names)

    def match(self, raw_path: str) -> Found:
        """Return method → (route, path parameters) for a path. If several routes match, a literal part wins over
        `<name>`."""
        found: Found = {}
        self._walk(self._root, raw_path.split("/"), 1, (), found)
        return found

    def _walk(self, node: dict[Any, Any], pieces: list[str], at: int, values: tuple[str, ...], found: Found) -> None:
        if at == len(pieces):
            for method, (route, names) in node.get(_LEAF, {}).items():
                found.setdefault(method, (route, dict(zip(names, values, strict=True))))
            return
        piece = unquote(pieces[at])
        if piece in node:
            self._walk(node[piece], pieces, at + 1, values, found)
        if piece and _ANY in node:
            self._walk(node[_ANY], pieces, at + 1, (*values, piece), found)
