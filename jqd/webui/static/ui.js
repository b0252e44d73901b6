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

// An open page fetches its live part every two seconds, unless nobody sees it. What stands there is old where no answer
// comes for longer: the UI hangs, or the network is gone.
const EVERY_MS = 2_000, SILENT_MS = 15_000;
const stale = document.getElementById("stale");
const loginOf = document.body.dataset.live; // only a page with a live part has it
let waiting;

function setOld(isOld) {
  stale.hidden = !isOld;
  clearTimeout(waiting);
  if (loginOf && !document.hidden) waiting = setTimeout(() => setOld(true), SILENT_MS);
}

function tick() {
  if (!document.hidden) htmx.trigger(document.body, "tick");
}

if (loginOf) {
  setOld(false);
  setInterval(tick, EVERY_MS);
  document.addEventListener("visibilitychange", () => { setOld(!stale.hidden); tick(); });
}
document.addEventListener("htmx:error", () => setOld(true));
// A form that goes on by itself is sent again where nobody answered: what it did counts once.
const AGAIN_MS = 5_000;
document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  const form = ctx?.sourceElement;
  if (form?.dataset.hxTrigger?.includes("again")) setTimeout(() => htmx.trigger(form, "again"), AGAIN_MS);
});
// A part says which login its page was opened by: another tab may have another one meanwhile, and so have all of them.
document.addEventListener("htmx:config:request", (event) => {
  if (loginOf) event.detail.ctx.request.headers["JQD-Form-Token"] = loginOf;
});
// Not `after:swap`, which comes also where a refusal was not put into the page: what stands there is old then.
document.addEventListener("htmx:after:request", (event) => setOld(event.detail.ctx.response.status >= 400));
