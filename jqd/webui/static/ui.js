// The pages work without this file. With it: lines to copy, and a word when nobody answers.
"use strict";

function addCopyButton(code) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    // navigator.clipboard is missing on plain HTTP: there the line is selected, for the keyboard.
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } else {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  });
  code.after(" ", button);
}

for (const code of document.querySelectorAll("code[data-copy]")) addCopyButton(code);

// A double click sends a form once: some acts do a thing anew each time, as *Run now* does.
const TWICE_MS = 1_000;
const sent = new WeakMap();
document.addEventListener("submit", (event) => {
  if (event.timeStamp - (sent.get(event.target) ?? -Infinity) < TWICE_MS) event.preventDefault();
  else sent.set(event.target, event.timeStamp);
});

// The stream of a page brings it anew every five seconds at the latest. It is old where nothing comes for longer:
// the UI hangs, the network is gone, or other windows hold all the connections that browsers open to one address.
const SILENT_MS = 15_000;
const stale = document.getElementById("stale");
let stream = null, waiting;

function setOld(isOld) {
  stale.hidden = !isOld;
  wait();
}

function wait() {
  clearTimeout(waiting);
  if (!document.getElementById("live") || document.hidden) return; // a hidden page holds no stream
  waiting = setTimeout(() => {
    stream?.reader?.cancel(); // connected anew: nobody says that a connection is gone where nothing is sent on it
    setOld(true);
  }, SILENT_MS);
}

wait();
document.addEventListener("visibilitychange", wait);
document.addEventListener("htmx:sse:after:connection", (event) => { stream = event.detail.connection; });

// Browsers open six connections of HTTP/1.1 to one address, and a stream holds one. So the first four windows have
// streams, and the others fetch their parts every few seconds: one more window finds a connection. Windows know of each
// other by what they say; a hidden one has no stream anyway.
const STREAMS_MAX = 4, SAY_MS = 5_000, GONE_MS = 12_000;
const page = document.getElementById("live");
const isNarrow = performance.getEntriesByType("navigation")[0]?.nextHopProtocol.startsWith("http/1");
const others = new Map();
const self = { at: performance.timeOrigin, id: Math.random(), isHere: true };
const windows = page && isNarrow ? new BroadcastChannel("jqd") : null;

function isSurplus() {
  const now = performance.now();
  const before = ([, one]) => now - one.heard < GONE_MS && (one.at < self.at || (one.at === self.at && one.id < self.id));
  return [...others].filter(before).length >= STREAMS_MAX;
}

function say(asks) {
  windows?.postMessage({ ...self, isHere: !document.hidden, asks });
}

windows?.addEventListener("message", ({ data }) => {
  if (data.isHere) others.set(data.id, { ...data, heard: performance.now() });
  else others.delete(data.id);
  if (data.asks && !document.hidden) say(false);
  if (isSurplus()) stream?.reader?.cancel();
});
if (windows) {
  say(true);
  setInterval(() => { if (!document.hidden) say(false); }, SAY_MS);
  document.addEventListener("visibilitychange", () => say(!document.hidden));
  addEventListener("pagehide", () => windows.postMessage({ ...self, isHere: false }));
  addEventListener("pageshow", () => say(true));
  document.addEventListener("htmx:sse:before:connection", (event) => { event.detail.connection.cancelled = isSurplus(); });
}
document.addEventListener("htmx:config:request", (event) => {
  if (event.detail.ctx.sourceElement !== page || !(document.hidden || isSurplus())) return;
  event.preventDefault(); // it is asked for again every five seconds
  if (!document.hidden) htmx.trigger(document.body, "tick");
});

for (const name of ["htmx:error", "htmx:sse:error"]) {
  document.addEventListener(name, () => setOld(true));
}
// A form that goes on by itself is sent again where nobody answered: what it did counts once.
const AGAIN_MS = 5_000;
document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  const form = ctx?.sourceElement;
  if (form?.dataset.hxTrigger?.includes("again")) setTimeout(() => htmx.trigger(form, "again"), AGAIN_MS);
});
// A part says which login its page was opened by: another tab may have another one meanwhile, and so have all of them.
document.addEventListener("htmx:config:request", (event) => {
  const live = document.getElementById("live");
  if (live) event.detail.ctx.request.headers["JQD-Form-Token"] = live.dataset.formToken;
});
// What a stream brings is of the address that the page was opened by. A part that was exchanged since then, as a look
// through a long list goes on by itself, is of another one: it asks for itself.
document.addEventListener("htmx:sse:before:message", (event) => {
  const live = document.getElementById("live");
  const part = document.querySelector(live.dataset.hxSelect);
  if (event.detail.message.event || part?.dataset.hxGet === live.dataset.of) return;
  event.detail.cancelled = true;
  htmx.trigger(document.body, "tick");
});
// Where many pages are open they take turns, and are told how long that takes.
const pace = document.getElementById("pace");
let isPaced = false;
document.addEventListener("htmx:sse:after:message", ({ detail: { message } }) => {
  if (message.event === "pace") {
    pace.firstElementChild.textContent = message.data;
    pace.hidden = false;
    isPaced = true;
    wait();
  } else if (!message.event) {
    pace.hidden = !isPaced;
    isPaced = false;
    setOld(false);
  }
});
// Not `after:swap`, which comes also where a refusal was not put into the page: what stands there is old then.
document.addEventListener("htmx:after:request", (event) => setOld(event.detail.ctx.response.status >= 400));
