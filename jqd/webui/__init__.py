"""The web UI, `jqd ui`: a process of its own, and a client of the API with the rights of a token (docs/adr/0091).

serve.py      binds, serves by hypercorn, stops; connection.py: keeps an error to its own connection
certificate.py  the certificate, read again when its files change
app.py        the application: finds the session and the page of a request, answers errors
visit.py      the request of a page, with its session; how pages declare their URLs and forms
pages/        a file for each page, and its template in templates/ under the same name
forms.py      the text of submitted forms, and the API's errors at each field
live.py       the event stream that renews an open page, and the files of static/
feed.py       tells open pages when to render again; follows one event stream of a daemon
api.py        the API client of a session; pages with the same rights share its answers; threads.py: how many calls
login.py      exchanges a token for a login; sessions.py: who is logged in; rights.py: which role may see and do what
refusals.py   errors that are shown instead of a page
security.py   response headers; which forms and host names are the UI's own
picture.py    flows and numbers over time as points of an SVG
values.py     values, dates and links as text

To add a page: write `pages/NAME.py` with `register(ui)`, name it in `pages/__init__.py`, write `templates/NAME.html`,
add a line to PAGES in tests/webui/pages.py. docs/build/WEBUI.md explains more.
"""
