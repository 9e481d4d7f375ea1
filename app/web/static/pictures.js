// Adds pointing to drawings and copying to files.  Every page says all it has to say without this script.
"use strict";

const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("aria-hidden", "true");

// A drawing's boxes have their words as titles, which browsers show late and never on touch.
function words(target) {
  const box = target instanceof Element && target.closest("svg rect");
  return box && box.querySelector("title") ? box : null;
}

function show(event) {
  const box = words(event.target);
  if (!box) {
    tip.remove();
    return;
  }
  tip.textContent = box.querySelector("title").textContent;
  if (!tip.isConnected) document.body.append(tip);
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
  const below = event.clientY + 18;
  const fits = below + tip.offsetHeight < document.documentElement.clientHeight;
  tip.style.top = `${fits ? below : event.clientY - tip.offsetHeight - 10}px`;
}

document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
document.addEventListener("scroll", () => tip.remove(), { passive: true, capture: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") tip.remove();
});

function offerCopies(area) {
  for (const button of area.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }
}

offerCopies(document);

// A click on a head sorts its table by that column, numbers as numbers; a second click turns the order round.
function figure(cell) {
  const number = parseFloat(cell.textContent.replaceAll(",", ""));
  return Number.isNaN(number) ? null : number;
}

function sort(table, column, falling) {
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [one.cells[column], other.cells[column]];
    const [x, y] = [figure(a), figure(b)];
    const order = x === null || y === null ? a.textContent.localeCompare(b.textContent) : x - y;
    return falling ? -order : order;
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table[data-sort]")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent.trim() || head.querySelector(".unseen")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sorts";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      sort(table, column, falling);
    });
    head.replaceChildren(button);
  });
}

// What takes a moment to work out comes from its own page, to the place of the same name on this one.
for (const place of document.querySelectorAll("[data-from]")) {
  fetch(place.dataset.from)
    .then(async (answer) => {
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.getElementById(place.id);
      if (found) place.replaceChildren(...found.childNodes);
    })
    .catch(() => {}); // The link beside it leads to the same.
}
