// Says beside a form what can be said before it is sent, a moment after every change.
// The page works without this script: a button asks for the same.
"use strict";

const form = document.querySelector("form[data-outlook]");
const PAUSE_MS = 700;
let waiting = 0;
let asked = null;

function missing(page) {
  const note = document.createElement("p");
  note.className = "soft";
  const texts = [...page.querySelectorAll("#problems li")].map((item) => item.textContent.trim());
  note.textContent = `Before the search: ${texts.join("; ")}`;
  return note;
}

async function ask() {
  if (asked) asked.abort();
  asked = new AbortController();
  const body = new FormData(form);
  // Chosen files are read when the form is sent; until then the boxes count.
  for (const upload of form.querySelectorAll("input[type=file]")) body.delete(upload.name);
  const area = document.getElementById("outlook");
  area.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(form.dataset.outlook, { method: "POST", body, signal: asked.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("outlook");
    area.replaceChildren(...(page.querySelector("#problems") ? [missing(page)] : fresh ? fresh.childNodes : []));
    offerCopies(area);
    area.removeAttribute("aria-busy");
  } catch {
    // Another change came first, or the service may be starting again.
  }
}

function later() {
  clearTimeout(waiting);
  waiting = setTimeout(ask, PAUSE_MS);
}

function isFilled(name) {
  return Boolean(form.elements[name].value || form.elements[`${name}_text`].value);
}

if (form) {
  form.addEventListener("input", later);
  if (isFilled("cluster") && isFilled("model") && !document.getElementById("problems")) later();
}
