"""A pusher and a worker that mean harm: every field they can fill holds what a page must not run."""

import httpx2

from jqd import App, current
from jqd.client import Client

RUN = "window.hacked=1"
EVIL = f"</script></pre><script>{RUN}</script><img src=x onerror={RUN}>\" onfocus='{RUN}' autofocus x=\"'"
"""At most 128 printable characters: a jobtype, a tag, an id."""
LONG_CHARS = 1 << 20
ANY = (
    f"{EVIL}\u202e\u2066\x00\x1b[31m\r\n<svg/onload={RUN}>"
    f"javascript:{RUN} {{{{7*7}}}} {{% raw %}}\ud7ff\U0010ffff]]>-->"
)
"""What fields take that may hold any text."""
URL = f"http://127.0.0.1:9/'onfocus='{RUN}'/%22%3E%3Cscript%3E{RUN}"
SECRET = "acme-secret-4711"

app = App()


@app.job(EVIL, keep_result=True, max_retry=0)
def ends(argument: object, /) -> object:
    """Tell and answer what harms, or fail with it."""
    context = current()
    context.progress(0.5, ANY)
    for line in ANY.splitlines():
        context.log(line)
    if argument == "fail":
        raise RuntimeError(ANY)
    return {ANY: [ANY, ANY.encode()]}


@app.job("large", keep_result=True, max_retry=0)
def large(argument: object, /) -> object:
    """Fail with the longest error."""
    current().log(EVIL * 1_000)
    raise RuntimeError(EVIL * 10_000)


def fill(client: Client) -> dict[str, str]:
    """Have a job of each kind; return their ids by kind."""
    jobs = {
        "succeeded": client.push(EVIL, {ANY: ANY}, tags=[EVIL], job_id=EVIL),
        "failed": client.push(EVIL, "fail", max_retry=0),  # as its worker says, of whom nobody may know yet
        "large": client.push("large", "<b>" * (LONG_CHARS // 3 - 100), tags=[EVIL], max_retry=0),
        "waiting": client.push(EVIL[:-7] + "/../%2f", ANY, tags=[EVIL]),
        "scheduled": client.push(EVIL, ANY, delay="1d", tags=[EVIL]),
    }
    jobs["blocked"] = client.push(EVIL, ANY, after=[jobs["scheduled"]])
    client.wait([jobs["succeeded"], jobs["failed"], jobs["large"]], timeout=60)
    return jobs


def register(url: str, token: str) -> None:
    """A worker whose card harms; where it stands nobody listens."""
    card = {"name": EVIL, "url": URL, "jobs": [EVIL[:-1] + "?"], "style": "webhook", "max_jobs": 1}
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx2.post(f"{url}/v1/workers", json=card, headers=headers, timeout=20)
    assert answer.status_code == 201, answer.text
