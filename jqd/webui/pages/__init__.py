"""The pages, in the order in which the head of each page names them. Each has `register(ui)`."""

from jqd.webui.pages import (
    audit,
    bulk,
    daemons,
    errors,
    job,
    jobs,
    now,
)

ALL = (
    now,
    jobs,
    job,
    bulk,
    errors,
    daemons,
    audit,
)
