"""The table of all routes: their handlers, and the types of their requests and responses.

Errors are answered with the type `problems.Details`, and `problems.STATUSES` has the status for each error. The
LightJQ, miniq and Skygear routes have tables and types of their own for errors (`jqd/api/compat`).
"""

from typing import Any

from jqd.api.compat import lightjq, miniq, skygear
from jqd.api.lists import ListQuery
from jqd.api.pages import HTML, YAML, Pages
from jqd.api.route import Document, Route
from jqd.api.v1 import (
    events,
    explain,
    flows,
    groups,
    handlers,
    job_actions,
    job_events,
    jobs,
    jobtypes,
    leases,
    listing,
    me,
    pauses,
    push,
    status,
    workers,
)
from jqd.api.v1 import responses as told
from jqd.cron import api as schedules
from jqd.cron.schedules import Plan
from jqd.domain import media
from jqd.domain.job_spec import JobSpec
from jqd.domain.tokens import Role
from jqd.history import api as history
from jqd.http import Urgency
from jqd.metrics import api as metrics
from jqd.rate_limits import api as constraints
from jqd.rate_limits.constraints import Limits
from jqd.rate_limits.service import Trial
from jqd.runner.handler import Definition
from jqd.service.bulk import Clean, Filter, Tally
from jqd.service.edit import Edit
from jqd.tenants import api as tenants
from jqd.tenants.quotas import Quota
from jqd.tenants.tokens import DerivedWanted, TokenWanted

Facts = dict[str, Any]

PUSHED = {200: (told.PushedJob, told.PushedJobs), 201: (told.PushedJob, told.PushedJobs), 207: told.PushedJobs}
HALF = {200: told.Half, 503: told.Half}
CANCELLED = {202: told.RecordedJob, 204: None}
DONE = (lightjq.Success, lightjq.Failure)
WORKER = {"worker-id": "the id that the worker was given when it registered"}
TAKEN = {201: lightjq.LightPushed}
ENROLLED = {201: lightjq.LightRegistered}
LIGHT: Facts = {"query": lightjq.AnyQuery, "plain": {"": media.MSGPACK}, "refuse": lightjq.refuse}
POLLED = LIGHT | {"query": lightjq.Polling, "polls": True, "refuses": (404, 408)}
LINED = {200: miniq.Added}
HANDLED = {200: miniq.AddedHandler}, (miniq.MiniqHandler, Document(miniq.TEXT))
SAYS_OK = {200: Document(miniq.TEXT)}
SKY = {200: skygear.SkyResult}
SKYGEAR: Facts = {
    "query": lightjq.AnyQuery,
    "heeds": {skygear.KEY_HEADER: "the master key, where it is not in the body"},
    "refusal": skygear.SkyRefusal,
    "refuse": skygear.refuse,
    "roles": (),  # its handlers check the key, which may be in the body
}
DATED = {200: schedules.SchedulePage}
SCHEDULED = {200: schedules.ScheduleView, 201: schedules.ScheduleView}
LIMITED = {200: (constraints.ConstraintView, Trial), 201: constraints.ConstraintView}
OPEN: Facts = {"roles": ()}
PUSH: Facts = {"roles": (Role.PUSH,)}
READ: Facts = {"roles": (Role.PUSH, Role.VIEWER)}
WAIT: Facts = READ | {"polls": True}
WORK: Facts = {"roles": (Role.WORKER,)}
SOURCE: Facts = {"roles": (Role.VIEWER, Role.WORKER)}  # a worker may see the code that it runs
OPERATE: Facts = {"roles": (Role.OPERATOR,)}
MASTER: Facts = {"roles": (Role.MASTER,)}
ONE: Facts = {"one_tenant": True}
ALL: Facts = {"all_tenants": True}
LIST: Facts = {"lists": True}
PAGE: Facts = LIST | {"query": ListQuery}
URGENT: Facts = WORK | {"urgency": Urgency.SMALL}
REPORT: Facts = WORK | {"urgency": Urgency.ANY_SIZE, "any_size": True}
PROBE: Facts = OPEN | {"urgency": Urgency.SMALL, "watched": True}
RESUMED = {job_events.LAST: "the `id` of the last event that came"}
METRICS = Document(*metrics.KINDS)
FOLLOWED = {200: Document(events.SSE), 204: None}
TRACED = {push.TRACE_HEADER: "the trace that attempts go on with, of jobs that name none"}
KEYED = {
    push.KEY_HEADER: "the request counts once under it, however often it is sent",
    **TRACED,
}
PUSHES: Facts = PUSH | ONE | {"any_size": True, "heeds": KEYED}
CLOSES: Facts = PUSH | ONE | {"bare": True, "heeds": TRACED}
LINES: Facts = PUSH | {"any_size": True, "plain": miniq.PLAIN}
NEW: Facts = {"plain": miniq.PLAIN}
PAGES = Pages()

ROUTES = [
    Route("POST", "/v1/jobs", push.push, PUSHED, (JobSpec, list[JobSpec]), push.PushQuery, **PUSHES),
    Route("GET", "/v1/jobs", listing.list_jobs, {200: told.Jobs}, None, listing.JobsQuery, **LIST),
    Route("POST", "/v1/jobs/cancel", job_actions.cancel_many, {200: Tally}, Filter, **LIST),
    Route("POST", "/v1/jobs/retry", job_actions.retry_many, {200: Tally}, Filter, **LIST),
    Route("POST", "/v1/jobs/delete", job_actions.delete_many, {200: Tally}, Filter, **LIST),
    Route("POST", "/v1/jobs/clean", job_actions.clean, {200: Tally}, Clean, **LIST),
    Route("GET", "/v1/jobs/<job_id>", jobs.get_job, {200: told.Job}, None, jobs.JobQuery, **WAIT),
    Route("GET", "/v1/jobs/<job_id>/why", explain.get_why, {200: explain.Why}, **READ),
    Route("GET", "/v1/jobs/<job_id>/events", job_events.follow, FOLLOWED, heeds=RESUMED, **READ),
    Route("GET", "/v1/jobs/<job_id>/log", job_events.get_log, {200: told.JobLog}, **READ),
    Route("GET", "/v1/jobs/<job_id>/result", jobs.get_result, {200: told.Result}, None, jobs.ResultQuery, **WAIT),
    Route("GET", "/v1/jobs/<job_id>/flow", flows.get, {200: flows.FlowPage}, None, flows.FlowQuery, **READ, **LIST),
    Route("POST", "/v1/jobs/<job_id>/flow/cancel", flows.cancel, {200: Tally}, flows.FlowChange, bare=True, **LIST),
    Route("POST", "/v1/jobs/<job_id>/flow/retry", flows.retry, {200: Tally}, flows.FlowChange, bare=True, **LIST),
    Route("GET", "/v1/groups/<group>", groups.get, {200: groups.Group}, **READ, **ONE, **LIST),
    Route("POST", "/v1/groups/<group>/close", groups.close, {200: groups.Closed}, groups.Close, **CLOSES),
    Route("POST", "/v1/groups/<group>/cancel", groups.cancel, {200: Tally}, flows.Change, bare=True, **ONE, **LIST),
    Route("POST", "/v1/groups/<group>/retry", groups.retry, {200: Tally}, flows.Change, bare=True, **ONE, **LIST),
    Route("DELETE", "/v1/jobs/<job_id>", jobs.delete_job, CANCELLED, None, jobs.DeleteQuery, **PUSH),
    Route("PATCH", "/v1/jobs/<job_id>", job_actions.edit, {200: told.Job}, Edit),
    Route("POST", "/v1/jobs/<job_id>/retry", job_actions.retry, {200: told.Job}, Edit, bare=True),
    Route("POST", "/v1/jobs/<job_id>/run-now", job_actions.run_now, {200: told.Job}),
    Route("POST", "/v1/jobs/<job_id>/heartbeat", leases.beat, {200: told.Beaten}, leases.Beating, **URGENT),
    Route("POST", "/v1/leases", leases.pull, {200: told.Lease}, leases.Pulling, polls=True, **URGENT),
    Route("POST", "/v1/outcomes", leases.report, {200: told.Reports}, list[leases.Outcome], **REPORT),
    Route("GET", "/v1/errors", listing.list_errors, {200: listing.Errors}, None, query=listing.ErrorsQuery, **LIST),
    Route("GET", "/v1/history", history.get, {200: history.History}, None, history.HistoryQuery, **LIST),
    Route("GET", "/v1/types", jobtypes.list_types, {200: jobtypes.Jobtypes}, None, jobtypes.TypesQuery, **LIST),
    Route("POST", "/v1/types/pause", pauses.pause_all, {200: pauses.Halted}, **ONE),
    Route("POST", "/v1/types/resume", pauses.resume_all, {200: pauses.Halted}, **ONE),
    Route("POST", "/v1/types/<name>/pause", pauses.pause, {200: pauses.Paused}, pauses.Pausing, bare=True),
    Route("POST", "/v1/types/<name>/resume", pauses.resume, {200: pauses.Paused}),
    Route("GET", "/v1/daemons", listing.list_daemons, {200: workers.Daemons}, **PAGE, **ALL),
    Route("POST", "/v1/daemons/<daemon>/drain", pauses.drain, {200: pauses.DrainResponse}, **ALL),
    Route("POST", "/v1/daemons/<daemon>/resume", pauses.resume_daemon, {200: pauses.DrainResponse}, **ALL),
    Route("POST", "/v1/workers", workers.register, {201: told.Registered}, workers.Registration, **URGENT),
    Route("GET", "/v1/workers", workers.list_workers, {200: workers.Workers}, **PAGE),
    Route("DELETE", "/v1/workers/<worker_id>", workers.unregister, {204: None}, **WORK),
    Route("GET", "/v1/handlers", handlers.list_handlers, {200: told.Handlers}, **PAGE, **SOURCE),
    Route("PUT", "/v1/handlers/<name>", handlers.put, {201: told.Handler}, Definition, **ONE),
    Route("GET", "/v1/handlers/<name>", handlers.get, {200: told.Handler}, None, handlers.HandlersQuery, **SOURCE),
    Route("DELETE", "/v1/handlers/<name>", handlers.delete, {204: None}),
    Route("GET", "/v1/schedules", schedules.list_schedules, DATED, None, schedules.SchedulesQuery, **LIST),
    Route("PUT", "/v1/schedules/<name>", schedules.put, SCHEDULED, Plan, schedules.PutQuery, **ONE),
    Route("GET", "/v1/schedules/<name>", schedules.get, {200: schedules.ScheduleView}),
    Route("DELETE", "/v1/schedules/<name>", schedules.delete, {204: None}),
    Route("POST", "/v1/schedules/<name>/run-now", schedules.run_now, {201: schedules.Pushed}),
    Route("POST", "/v1/schedules/<name>/pause", schedules.pause, {200: schedules.ScheduleView}),
    Route("POST", "/v1/schedules/<name>/resume", schedules.resume, {200: schedules.ScheduleView}),
    Route("GET", "/v1/constraints", constraints.list_constraints, {200: constraints.ConstraintPage}, **PAGE),
    Route("PUT", "/v1/constraints/<name>", constraints.put, LIMITED, Limits, constraints.PutQuery, **ONE),
    Route("GET", "/v1/constraints/<name>", constraints.get, {200: constraints.ConstraintView}),
    Route("DELETE", "/v1/constraints/<name>", constraints.delete, {204: None}),
    Route("GET", "/v1/events", events.listen, {200: Document(events.SSE)}, None, events.EventsQuery),
    Route("GET", "/v1/me", me.get, {200: me.Me}, **READ),
    Route("PUT", "/v1/quotas/<tenant>", tenants.put, {200: tenants.QuotaView}, Quota, **MASTER, **ONE, **ALL),
    Route("GET", "/v1/quotas", tenants.list_quotas, {200: tenants.QuotaPage}, **PAGE, **READ),
    Route("GET", "/v1/quotas/<tenant>", tenants.get, {200: tenants.QuotaView}, **READ),
    Route("DELETE", "/v1/quotas/<tenant>", tenants.delete, {204: None}, **MASTER, **ALL),
    Route("GET", "/v1/tenants", tenants.list_tenants, {200: tenants.Tenants}, **PAGE),
    Route("GET", "/v1/audit", tenants.list_notes, {200: tenants.Notes}, None, tenants.AuditQuery, **LIST, **OPERATE),
    Route("POST", "/v1/tokens", tenants.create, {201: tenants.NewToken}, TokenWanted, **MASTER),
    Route("GET", "/v1/tokens", tenants.list_tokens, {200: tenants.Tokens}, **PAGE, **READ),
    Route("POST", "/v1/tokens/derive", tenants.derive, {201: tenants.NewToken}, DerivedWanted, bare=True, **READ),
    Route("DELETE", "/v1/tokens/<token_id>", tenants.revoke, {200: tenants.Revoked}, **READ),
    Route("GET", "/v1/stats", status.stats, {200: dict[str, Any]}, **ALL),
    Route("GET", "/metrics", metrics.metrics, {200: METRICS}, **ALL, watched=True),
    Route("GET", "/livez", status.livez, {200: told.Live}, **PROBE),
    Route("GET", "/readyz", status.readyz, {200: told.Ready, 503: told.Ready}, **PROBE),
    Route("GET", "/readyz/push", status.readyz_push, HALF, **PROBE),
    Route("GET", "/readyz/run", status.readyz_run, HALF, **PROBE),
    Route("GET", "/openapi.json", PAGES.as_json, {200: Document(media.JSON)}, **OPEN),
    Route("GET", "/openapi.yaml", PAGES.as_yaml, {200: Document(YAML)}, **OPEN),
    Route("GET", "/docs", PAGES.as_html, {200: Document(HTML)}, **OPEN),
    # LightJQ's interface has no answer for a wrong query, so unknown parameters are ignored.
    Route("POST", "/job", lightjq.push_job, TAKEN, lightjq.LightJob, **LIGHT, refuses=(400,), **PUSH),
    Route("GET", "/job/<job_id>", lightjq.get_job, {200: lightjq.Status}, **LIGHT, refuses=(404,), **READ),
    Route("DELETE", "/job/<job_id>", lightjq.delete_job, {204: None}, **LIGHT, refuses=(404, 409), **PUSH),
    Route("GET", "/job/<job_id>/polling", lightjq.poll_job, {200: lightjq.Status}, **POLLED, **READ),
    Route("POST", "/worker", lightjq.register, ENROLLED, lightjq.LightWorker, **LIGHT, refuses=(400,), **URGENT),
    Route("DELETE", "/worker", lightjq.unregister, {204: None}, headers=WORKER, **LIGHT, refuses=(404,), **URGENT),
    Route("POST", "/done", lightjq.done, {204: None}, DONE, headers=WORKER, **LIGHT, refuses=(400, 404), **REPORT),
    Route("POST", "/add", miniq.add, LINED, Document(miniq.TEXT), miniq.Adding, **LINES),
    Route("POST", "/<client>/job/<jobtype>/add", miniq.add_for, LINED, Document(miniq.TEXT), **LINES),
    Route("POST", "/<client>/handler/add/<jobtype>/add", miniq.add_handler, *HANDLED, miniq.AddingHandler, **NEW),
    Route("GET", "/<client>/handler/get/<jobtype>", miniq.get_handler, {200: miniq.StoredHandler}, **SOURCE),
    Route("POST", "/<client>/handler/del/<jobtype>/delete", miniq.delete_handler, {200: miniq.GoneHandler}),
    Route("GET", "/", miniq.here, SAYS_OK, **OPEN),
    Route("GET", "/start", miniq.get_start, SAYS_OK, **OPERATE, **ALL),
    Route("POST", "/start", miniq.start, SAYS_OK, **ALL),
    Route("GET", "/stop", miniq.get_stop, SAYS_OK, **OPERATE, **ALL),
    Route("POST", "/stop", miniq.stop, SAYS_OK, **ALL),
    Route("POST", "/", skygear.act, SKY, (skygear.SkyEnqueue, skygear.SkyCancel), **SKYGEAR),
    Route("POST", "/job/enqueue", skygear.enqueue, SKY, skygear.SkyEnqueue, **SKYGEAR),
    Route("POST", "/job/cancel", skygear.cancel_job, SKY, skygear.SkyCancel, **SKYGEAR),
]
PAGES.routes = ROUTES
