"""The modules of all pages (`ALL`), in the order of their links in the head of each page. Each has `register(ui)`."""

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
