"""Makes URL paths of jobs, types and other things with names. No other file puts names into URLs."""

from urllib.parse import quote

from jqd.client.errors import Invalid
from jqd.domain.job import why_no_place

NAME_CHARS_MAX = 64  # of a name quoted in a message


def job_path(job_id: str) -> str:
    """Return the path of a job. `job_id`: jqd's id, or that of its pusher."""
    if not job_id:
        raise ValueError("a job's id is never empty")
    return path_of("jobs", job_id)


def path_of(kind: str, name: str) -> str:
    """Return the URL path of a thing, from its kind ("jobs", "types", …) and name. Raises Invalid for a name that would
    lead to another path, or that no URL can hold."""
    if why := "stands in URLs, and is never empty" if not name else why_no_place(name):
        raise Invalid(f"{name!r} is none of the {kind}: a name {why}; nothing was sent", status=400)
    try:
        return f"/v1/{kind}/{quote(name, safe='')}"
    except UnicodeEncodeError as error:
        raise Invalid(
            f"{name[:NAME_CHARS_MAX]!r} is none of the {kind}: {error}; nothing was sent", status=400
        ) from error
