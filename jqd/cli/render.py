"""How answers look: a table for people, JSON or JSON lines for programs."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table

Output = Literal["table", "json", "jsonl"]


def show(value: Any, output: Output) -> None:
    """Print one answer to stdout."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if output == "table":
        _table(value)
    elif output == "jsonl" and isinstance(value, list):
        for item in value:
            print(_json(item))
    else:
        print(_json(value, indent=1 if output == "json" else None))


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return str(value)


def _table(value: Any) -> None:
    console = Console(soft_wrap=True)
    if isinstance(value, Mapping):
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, item in value.items():
            if item not in (None, "", [], ()):
                table.add_row(f"[bold]{name}[/bold]", _cell(item))
        console.print(table)
    elif isinstance(value, list):
        for item in value:
            _table(item)
    else:
        console.print(_cell(value), markup=False, highlight=False)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    return text.replace("[", "\\[")
