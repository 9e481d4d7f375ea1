// Keeps the progress of a plan, or of a decision on failures, fresh without loading the whole page again.
// The page works without this script: it then asks the browser to reload itself every few seconds.
"use strict";

const area = document.querySelector("[data-progress]");
const PAUSE_MS = 1000;

async function refresh() {
  try {
    const answer = await fetch(area.dataset.progress, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(String(answer.status));
    if (answer.headers.get("Plan-Finished") === "yes") {
      location.reload();
      return;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of fresh.querySelectorAll("[id]")) {
      const shown = document.getElementById(part.id);
      // Untouched parts stay as they are, so that a screen reader only speaks of what changed.
      if (shown && shown.innerHTML !== part.innerHTML) shown.replaceChildren(...part.childNodes);
    }
  } catch {
    // The service may be starting again; the next try will tell.
  }
  setTimeout(refresh, PAUSE_MS);
}

if (area) setTimeout(refresh, PAUSE_MS);
