"""Asks the other processes of one `jqd serve --processes N`, so that whichever meets a probe or a scrape answers for
all, and sends them settings. Each has an address of its own on loopback (sibling_api.py); whoever is asked there
answers for itself alone.
"""

from collections.abc import Mapping, Sequence

import httpx2
import trio

from jqd.api.auth import AUTHORIZATION, TENANT
from jqd.domain.process import ALONE, Process
from jqd.http import Request

FOR_ITSELF = "jqd-process"  # a header: who is asked answers for itself. Of siblings it has the root token
ANSWER_S = 0.7  # a probe of Kubernetes waits for 1 s at all
SCRAPE_S = 5.0  # Prometheus waits for 10 s
SEND_S = 2.0  # a sync of its disk; one that hangs holds up what is sent to the others for so long
ASKED = frozenset({"/readyz", "/metrics"})
SETTINGS = "/siblings/settings"
SAME = (AUTHORIZATION, TENANT)  # headers by which a sibling knows the same caller


class Siblings:
    """The other processes. A daemon that is the only one has none."""

    def __init__(self, process: Process = ALONE, root: str = "") -> None:
        """`root`: the root token, which is the same at all of them."""
        self.process, self._root = process, root
        self.away: Mapping[int, str] = {}
        """Those that the supervisor has to start again, and why."""
        self._http: httpx2.AsyncClient | None = None  # made once, when it is needed: that takes 15 ms

    def asked(self, request: Request) -> Sequence[int]:
        """Return the processes to ask for the answer to a request."""
        return [] if FOR_ITSELF in request.headers else self.others

    @property
    def others(self) -> Sequence[int]:
        """Return the numbers of all but this process."""
        return [number for number, url in enumerate(self.process.urls) if url and number != self.process.number]

    async def ask(self, request: Request, path: str, kind: str, timeout_s: float) -> dict[int, bytes | str]:
        """Return what each answers to the same caller, in the media type `kind`; a text: why it does not."""
        found: dict[int, bytes | str] = {}
        headers = {FOR_ITSELF: self._root, "accept": kind, "accept-encoding": "identity"}
        headers |= {name: request.headers[name] for name in SAME if name in request.headers}

        async def one(number: int) -> None:
            try:
                answer = await self._client().get(self.process.urls[number] + path, headers=headers)
                # A 503 of another path says that it is busy, in words that are no samples.
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
                        nursery.start_soon(one, number)
        late = f"it does not answer within {timeout_s:g} s"
        return {number: found.get(number, late) for number in asked}

    async def send_settings(self, number: int, frame: bytes) -> bool:
        """Send a frame of settings to a process. Returns whether these are in its journal."""
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
    """Return one document of samples, each with the label `process`, of those of several processes."""
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
