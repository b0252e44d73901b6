"""Calls the other processes of one `jqd serve --processes N`. So any process can answer a health check or a request for
metrics for all of them, and can send them settings. Each process has an address of its own on loopback
(sibling_api.py), where it answers only for itself."""

from collections.abc import Mapping, Sequence

import httpx2
import trio

from jqd.api.auth import AUTHORIZATION, TENANT
from jqd.domain.process import ALONE, Process
from jqd.http import Request

FOR_ITSELF = "jqd-process"  # header: the process answers for itself alone. Siblings put the root token in it
ANSWER_S = 0.7  # wait for siblings in a health check: Kubernetes gives it 1 s in all
SCRAPE_S = 5.0  # wait for siblings in a scrape: Prometheus gives it 10 s
SEND_S = 2.0  # wait for a sibling to save settings, a sync; one that hangs delays the next sibling by so much
ASKED = frozenset({"/readyz", "/metrics"})
SETTINGS = "/siblings/settings"
SAME = (AUTHORIZATION, TENANT)  # headers passed on to siblings, so that they see the same caller


class Siblings:
    """Calls the other processes. A daemon with a single process has no others."""

    def __init__(self, process: Process = ALONE, root: str = "") -> None:
        """`root`: the root token, which all processes have."""
        self.process, self._root = process, root
        self.away: Mapping[int, str] = {}
        """Number of a process that is down → why it is. The supervisor's messages set it."""
        self._http: httpx2.AsyncClient | None = None  # made at the first call, as that takes 15 ms

    def asked(self, request: Request) -> Sequence[int]:
        """Return the numbers of the processes to ask for a request; empty if a sibling process sent the request."""
        return [] if FOR_ITSELF in request.headers else self.others

    @property
    def others(self) -> Sequence[int]:
        """Return the numbers of all processes but this one."""
        return [number for number, url in enumerate(self.process.urls) if url and number != self.process.number]

    async def ask(self, request: Request, path: str, kind: str, timeout_s: float) -> dict[int, bytes | str]:
        """Ask the other processes for `path` on behalf of the request's caller. Returns process number → body of its
        answer, or a text that says why there is none. `kind`: the wanted media type."""
        found: dict[int, bytes | str] = {}
        headers = {FOR_ITSELF: self._root, "accept": kind, "accept-encoding": "identity"}
        headers |= {name: request.headers[name] for name in SAME if name in request.headers}

        async def fetch(number: int) -> None:
            try:
                answer = await self._client().get(self.process.urls[number] + path, headers=headers)
                # A health check may be answered with 503. For metrics a 503 is an error, and its body has no samples.
                is_answer = answer.status_code == 200 or (answer.status_code == 503 and path == "/readyz")
                found[number] = answer.content if is_answer else f"it answers {answer.status_code}"
            except httpx2.HTTPError as error:
                found[number] = f"it does not answer: {str(error) or type(error).__name__}"

        asked = self.asked(request)
        found |= {number: self.away[number] for number in asked if number in self.away}
        with trio.move_on_after(timeout_s):
            async with trio.open_nursery() as nursery:
                for number in asked:
                    if number not in found:
                        nursery.start_soon(fetch, number)
        late = f"it does not answer within {timeout_s:g} s"
        return {number: found.get(number, late) for number in asked}

    async def send_settings(self, number: int, frame: bytes) -> bool:
        """Send a frame of settings to a process. Returns whether the process has written them to its journal."""
        if number in self.away:
            return False
        headers, url = {FOR_ITSELF: self._root}, self.process.urls[number] + SETTINGS
        try:
            answer = await self._client().post(url, content=frame, headers=headers, timeout=SEND_S)
        except httpx2.HTTPError:
            return False
        return answer.status_code == 204

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            self._http = httpx2.AsyncClient(trust_env=False, verify=False, timeout=SCRAPE_S)
        return self._http


def labelled(documents: Mapping[int, bytes]) -> bytes:
    """Merge the Prometheus metrics of several processes (number → document), and give each sample the label
    `process`."""
    comments: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for number, document in documents.items():
        label, name = b'process="%d"' % number, b""
        for line in document.splitlines():
            if line.startswith(b"# HELP "):
                name = line.split(b" ", 3)[2]
                is_new = name not in comments
                comments.setdefault(name, []), samples.setdefault(name, [])
            if line.startswith(b"#"):
                if line != b"# EOF" and is_new:
                    comments[name].append(line)
                continue
            brace, blank = line.find(b"{"), line.find(b" ")
            if 0 <= brace < blank:
                samples[name].append(line[: brace + 1] + label + b"," + line[brace + 1 :])
            else:
                samples[name].append(line[:blank] + b"{" + label + b"}" + line[blank:])
    return b"".join(b"%b\n" % line for name in comments for line in (*comments[name], *samples[name]))
