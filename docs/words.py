"""Words of use/REFERENCE.md that no type has: its beginning, its sections, its errors."""

INTRO = """# Reference of the HTTP interface

Every call, field of a request, and error, from the code. A daemon shows the fields of answers at `/docs` and
`/openapi.json`. [HTTP.md](HTTP.md), [WORKERS.md](WORKERS.md) and [SCHEDULING.md](SCHEDULING.md) tell how they are used.

*role*: what a token must have, where tokens are needed; `operator` and `master` may call the others, too
([SECURITY.md](../operate/SECURITY.md#roles)). *takes*: headers, `?` the query, the body; brackets mean an array.
*answers*: with 200, where no status stands. A *date* is ISO 8601 with a time zone, or Unix seconds; a *flag* true or
false, in a query also 1 or 0; a *label* has 1 to 128 printable characters, no blank at the ends; *text to* so many
characters. Answers have dates in UTC, and leave fields out, or null, where there is nothing to say.
"""
# Title → the paths below it.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Jobs": ("/v1/jobs", "/v1/groups", "/v1/types", "/v1/errors", "/v1/events", "/v1/history"),
    "Workers and handlers": ("/v1/workers", "/v1/leases", "/v1/outcomes", "/v1/handlers"),
    "Schedules": ("/v1/schedules",),
    "Constraints": ("/v1/constraints",),
    "Tenants and tokens": ("/v1/me", "/v1/tenants", "/v1/quotas", "/v1/tokens", "/v1/audit"),
    "Daemons": ("/v1/", "/metrics", "/livez", "/readyz", "/openapi", "/docs"),
    "LightJQ, miniq, Skygear": (),
}
SHORT = {
    "32-bit integer, -2147483648 to 2147483647": "32-bit integer",
    "true or false or an ISO 8601 date with a time zone, or a number of Unix seconds": "flag or date",
    "an ISO 8601 date with a time zone, or a number of Unix seconds": "date",
    "an ISO 8601 date with a time zone, or number of Unix seconds": "date",
    "`0` `1` `false` `true`": "flag",
    "true or false": "flag",
    "1 to 128 printable characters": "label",
    "URL, http(s)://host[:port][/path]": "URL",
    'true, false or "required"': "flag or `required`",
    "text of 1 to 1000 characters": "text, at most 1000 characters",
    "something else": "any value",
    "a value": "any value",
}
STATUSES: dict[int | str, str] = {
    400: "not understood as a whole, or no valid HTTP",
    401: "no valid token",
    403: "not allowed, or [a web page asked](HTTP.md#who-may-ask)",
    404: "no such job, worker or path; `detail` names what was probably meant",
    408: "the request was not complete in time; nothing was taken",
    409: "the state of the job does not allow it, or its id stands for another: look at the job",
    413: "the body is too large: push smaller arrays; keep big data elsewhere and push its address",
    415: "a `Content-Type` or `Content-Encoding` that is not spoken here",
    421: "[an unknown `Host`](HTTP.md#who-may-ask)",
    422: "a field is wrong; `errors` names it",
    429: "too much waits, a quota is spent, or too many lists are being made: again after `Retry-After` seconds",
    500: "an internal error; `id` names its line in the daemon's log: report it",
    503: "shutting down, too many connections, the disk fails, or the store is needed and away: again after"
    " `Retry-After` seconds, or at another daemon",
    507: "the disk is full: again later; jobs already taken go on",
    "405 414 417 431 501 505": "a method, target, `Expect`, size of headers, `Transfer-Encoding` or version of HTTP"
    " that is not taken",
}
