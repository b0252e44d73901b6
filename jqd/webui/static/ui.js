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

const stale = document.getElementById("stale");
for (const name of ["htmx:error", "htmx:sse:error"]) {
  document.addEventListener(name, () => { stale.hidden = false; });
}
// Not `after:swap`, which comes also where a refusal was not put into the page: what stands there is old then.
document.addEventListener("htmx:after:request", (event) => {
  stale.hidden = event.detail.ctx.response.status < 400;
});
