"""All pages, in the order of the links in the head of each page. Each module has `register(ui)`."""

from jqd.webui.pages import (
    audit,
    bulk,
    constraints,
    daemons,
    errors,
    flow,
    job,
    jobs,
    now,
    schedules,
    tenants,
    tokens,
    types,
    workers,
)

ALL = (now, jobs, job, flow, bulk, errors, types, schedules, constraints, workers, tenants, daemons, audit, tokens)
