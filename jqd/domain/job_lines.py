"""Lines by which a program asks for new jobs, by node-miniq's rule: `J: type|payload`, or `#J: …` among comments. Pure.

The payload is the rest of the line as it stands, as a text.
"""

PREFIXES = (b"J: ", b"#J: ")


def is_job(line: bytes) -> bool:
    return line.startswith(PREFIXES)


def job_of(line: bytes) -> dict[str, str]:
    """Return the job that such a line asks for, as `jobs` of an outcome has it; without a | it has no argument."""
    text = line.partition(b": ")[2].rstrip(b"\r\n").decode("utf-8", "replace")
    name, bar, payload = text.partition("|")
    return {"name": name.strip()} | ({"argument": payload} if bar else {})
