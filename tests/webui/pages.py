"""All pages of the UI, each with a word that must stand on it. A new page is one line here."""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from tests.webui.conftest import NASTY, NASTY_GROUP, ODD, Site


class Seen(NamedTuple):
    name: str
    path: Callable[[Site], str]
    holds: str
    again: bool = False
    """Another page of the same template is looked at with each change; `make slow` looks at this one, too."""


def job(state: str, path: str = "/job?id=", after: str = "") -> Callable[[Site], str]:
    return lambda site: path + quote(site.jobs[state], safe="") + after


def plain(path: str) -> Callable[[Site], str]:
    return lambda site: path


PAGES = [
    Seen("now", plain("/"), "What waits longest"),
    Seen("jobs", plain("/jobs"), "Jobs, newest first"),
    Seen("jobs failed", plain("/jobs?state=failed&name=fail"), "fail", again=True),
    Seen("jobs none", plain("/jobs?tag=nobody-has-this"), "No job is of that kind", again=True),
    Seen("job succeeded", job("succeeded"), "Result"),
    Seen("job failed", job("failed"), "Mend the argument and retry"),
    Seen("job waiting", job("waiting"), "Why it waits", again=True),
    Seen("job blocked", job("blocked"), "Jobs of its flow", again=True),
    Seen("job odd", job("odd"), "$bytes"),
    Seen("errors", plain("/errors"), "Reasons, the most frequent first"),
    Seen("errors none", plain("/errors?state=retrying&name=nobody"), "No job failed so", again=True),
    Seen(
        "bulk",
        plain("/bulk?act=delete&state=failed&error=%3Cscript%3Ealert(1)&before=2100-01-01T00:00:00Z"),
        "deleted for good",
    ),
    Seen("flow", job("blocked", "/flow?id="), "Jobs by step"),
    Seen("flow odd", job("odd", "/flow?id="), "Picture", again=True),
    Seen("flow sure", job("blocked", "/flow/confirm?act=cancel&id="), "Leave them as they are"),
    Seen("group", plain("/group?name=" + quote(NASTY_GROUP, safe="")), "of 1 jobs have ended"),
    Seen("types", plain("/types"), "Jobtypes, by name"),
    Seen("type", plain("/type?name=echo"), "The same as numbers"),
    Seen("type waiting", plain("/type?minutes=11520&name=" + quote(NASTY, safe="")), "Why it waits", again=True),
    Seen("confirm", job("odd", "/job/confirm?act=cancel&id="), "Leave it as it is"),
    Seen("schedules", plain("/schedules"), "Schedules by name"),
    Seen("schedule", plain("/schedule?name=" + quote(ODD, safe="")), "Change it"),
    Seen("schedule new", plain("/schedule"), "Or every", again=True),
    Seen("constraints", plain("/constraints"), "Constraints by name"),
    Seen("constraint", plain("/constraint?name=" + quote(ODD, safe="")), "Some jobs that wait for it"),
    Seen("constraint new", plain("/constraint"), "Dry run", again=True),
    Seen(
        "constraint delete", plain("/constraint/confirm?name=" + quote(ODD, safe="")), "Leave it as it is", again=True
    ),
    Seen("workers", plain("/workers"), "How each daemon sees them"),
    Seen("handler", plain("/handler?name=" + quote(ODD, safe="")), "all new jobs"),
    Seen("tenants", plain("/tenants"), "Tenants, and how their jobs stand"),
    Seen("daemons", plain("/daemons"), "Daemons that went within the last day"),
    Seen("tokens", plain("/tokens"), "token"),
    Seen("token new", plain("/token"), "The next page shows its secret"),
    Seen("audit", plain("/audit?act=jobs+delete"), "Nobody did that"),
]
REFUSED = [
    Seen("no such job", plain("/job?id=nobody"), "nobody"),
    Seen("no such page", plain("/nothing"), "there is no page /nothing", again=True),
    Seen("wrong errors", plain("/errors?state=running"), "running", again=True),
    Seen("all there is", plain("/bulk?act=cancel&before=2030-01-01T00:00:00Z"), "which jobs?", again=True),
    Seen("wrong filter", plain("/jobs?state=nonsense"), "nonsense"),
]
"""Pages that say what is wrong."""
