"""Lines by which a program asks for new jobs, by node-miniq's rule: `J: type|payload`, or `#J: …` among comments. Pure.

The payload is the rest of the line as it stands, as a text; what is no UTF-8, as bytes.
"""

from typing import Any

PREFIXES = (b"J: ", b"#J: ")


def is_job(line: bytes) -> bool:
    return line.startswith(PREFIXES)


def job_of(line: bytes) -> dict[str, Any]:
    """Return the job that such a line asks for, as `jobs` of an outcome has it; without a | it has no argument."""
    name, bar, payload = line.partition(b": ")[2].rstrip(b"\r\n").partition(b"|")
    return {"name": name.decode("utf-8", "replace").strip()} | ({"argument": _value(payload)} if bar else {})


def _value(payload: bytes) -> str | bytes:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload
