"""The web UI, `jqd ui`: a process of its own, and a client of the API with the rights of a token (docs/adr/0091).

serve.py      binds, serves by hypercorn, stops; connection.py: none ends another
app.py        the application: who may ask, which page answers, what is shown when something is wrong
visit.py      one request as a page sees it; how pages declare what they answer, and ask before what cannot be undone
pages/        a file for each page, and its template in templates/ under the same name
forms.py      what was typed, and what the API says against it at its field
live.py       the stream of a page, and the files of static/
feed.py       one stream of a daemon for all pages, and whose turn it is
api.py        the client of a session, and answers that pages share
login.py      a token for a login; sessions.py: who is logged in; rights.py: which role may see and do what
refusals.py   what ends in an error instead of a page, and what is said then
security.py   headers, forms of our own, hosts of our own
picture.py    flows and numbers over time as points of an SVG
values.py     values, dates and links as text

To add a page: write `pages/NAME.py` with `register(ui)`, name it in `pages/__init__.py`, write `templates/NAME.html`,
add a line to PAGES in tests/webui/pages.py. docs/build/WEBUI.md tells more.
"""
