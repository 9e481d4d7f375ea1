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

// Fields that do not apply to what was chosen are out of the way, and are not sent.
for (const part of document.querySelectorAll("[data-when]")) {
  const [name, values] = part.dataset.when.split("=");
  const chosen = part.closest("form").elements[name];
  const fit = () => {
    part.hidden = !values.split(",").includes(chosen.value);
    for (const field of part.querySelectorAll("input, select")) field.disabled = part.hidden;
  };
  chosen.addEventListener("change", fit);
  fit();
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

// A section that a form or links within it show otherwise is fetched alone; keys named by its links press them.
async function showAgain(section, address) {
  section.setAttribute("aria-busy", "true");
  const head = section.getAttribute("aria-labelledby");
  try {
    const answer = await fetch(address);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector(`[data-live][aria-labelledby="${head}"]`);
    if (!answer.ok || !fresh) throw new Error(String(answer.status));
    const held = document.activeElement;
    const drawn = section.contains(held) && held.matches(".scroll");
    section.replaceChildren(...fresh.childNodes);
    if (drawn) section.querySelector(".scroll").focus({ preventScroll: true });
    history.replaceState(null, "", address);
    inUnits(section);
  } catch {
    location.assign(address);
  }
  section.removeAttribute("aria-busy");
}

for (const section of document.querySelectorAll("[data-live]")) {
  section.addEventListener("submit", (event) => {
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(event.target));
    showAgain(section, `${location.pathname}?${fields}${new URL(event.target.action).hash}`);
  });
  section.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-key]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    showAgain(section, link.href);
  });
  section.addEventListener("keydown", (event) => {
    if (!event.target.matches(".scroll") || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key === "=" ? "+" : event.key;
    const link = [...section.querySelectorAll("a[data-key]")].find((each) => each.dataset.key === key);
    if (!link) return;
    event.preventDefault();
    showAgain(section, link.href);
  });
}

// Bandwidths are sent in GB/s; who thinks in Gbit/s sees them so, here and on the pages that follow.
const RATE = /(\d[\d,]*(?:\.\d+)?)(\s?)GB\/s/g;

function unit(chosen) {
  try {
    if (chosen) localStorage.setItem("unit", chosen);
    return localStorage.getItem("unit");
  } catch {
    return null; // Nothing may be kept in this browser.
  }
}

function eightfold(number) {
  const value = 8 * parseFloat(number.replaceAll(",", ""));
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(4, String(Math.trunc(value)).length) });
}

function inUnits(area) {
  if (unit() !== "Gbit/s") return;
  const texts = document.createTreeWalker(area, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (text.parentElement.closest("script, textarea, pre, code, [data-unit]")) continue;
    // A unit alone belongs to an axis, whose figures stay as they are.
    const told = text.data.replace(RATE, (_, number, space) => `${eightfold(number)}${space}Gbit/s`);
    if (told !== text.data) text.data = told;
  }
  for (const cell of area.querySelectorAll("td[data-rate]")) cell.textContent = eightfold(cell.textContent);
  for (const head of area.querySelectorAll("th[data-rate]")) head.textContent = head.textContent.replace("GB/s", "Gbit/s");
}

const hasRates = /\d\s?GB\/s/.test(document.body.textContent);
inUnits(document.body);
for (const button of document.querySelectorAll("[data-unit]")) {
  if (!hasRates) continue;
  const other = unit() === "Gbit/s" ? "GB/s" : "Gbit/s";
  button.textContent = `Bandwidths in ${other}`;
  button.hidden = false;
  button.addEventListener("click", () => {
    if (unit(other) === other) location.reload();
  });
}
