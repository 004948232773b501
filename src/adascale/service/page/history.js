// The last verdicts: those of this page with their pictures, and those of the service's other users without.

import { find, make } from "./elements.js";
import { show } from "./pictures.js";
import { classOf, short } from "./text.js";

const MOST = 12;
const SIDE = 48;

let entries = []; // newest first
let added = 0; // by this page
let pick = () => {};

export function start(onPick) {
  pick = onPick;
}

// How many were added so far: what the service is asked for after this mark is not older than they are.
export const mark = () => added;

// The entry of this verdict, at the front; the service may have listed it before its answer came.
export function add(row, picture) {
  const known = row.id ? entries.find((one) => one.row.id === row.id) : undefined;
  added += 1;
  const entry = Object.assign(known ?? {}, { row: { ...known?.row, ...row }, picture, order: added });
  entries = [entry, ...entries.filter((one) => one !== entry)].slice(0, MOST);
  return entry;
}

// Verdicts that the service listed, newest first, when it was asked at this mark. They go between those that it also
// listed, below what was added since. True if one of them is new here.
export function merge(rows, asked) {
  let place = entries.filter((entry) => entry.order > asked).length;
  let fresh = false;
  for (const row of rows) {
    const known = entries.findIndex((entry) => entry.row.id === row.id);
    if (known < 0) {
      entries.splice(place, 0, { row, picture: null, order: 0 });
      fresh = fresh || place < MOST;
    }
    place = Math.max(place, known < 0 ? place + 1 : known + 1);
  }
  entries.length = Math.min(entries.length, MOST);
  return fresh;
}

export function clear() {
  entries = [];
}

export function draw(chosen) {
  find("history").hidden = !entries.length;
  const list = find("history").querySelector("ol");
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  const held = focused < 0 ? null : list.querySelectorAll("button")[focused].dataset.id;
  list.replaceChildren(...entries.map((entry) => make("li", {}, line(entry, entry === chosen))));
  if (held) list.querySelector(`button[data-id="${CSS.escape(held)}"]`)?.focus();
}

function line(entry, chosen) {
  const { row } = entry;
  const kind = row.error ? "wrong" : row.is_ood ? "unlike" : "like";
  const verdict = row.error ? "Not read" : row.is_ood ? "Unlike" : "Like";
  const about = row.error ? row.error : [classOf(row), `p = ${short(row.p_value)}`].filter(Boolean).join(" \u00b7 ");
  const inside = [thumbnail(entry), make("span", { class: "what" }, make("b", {}, row.name || "a picture"), make("small", {}, about)), make("span", { class: `tag ${kind}` }, verdict)];
  if (row.error) return make("div", { class: "line" }, ...inside);
  const button = make("button", { type: "button", class: "line", "data-id": row.id ?? "", ...(chosen ? { "aria-current": "true" } : {}) }, ...inside);
  button.addEventListener("click", () => pick(entry));
  return button;
}

function thumbnail(entry) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const picture = entry.picture ?? entry.seen;
  if (!picture) return make("span", { class: "none", "aria-hidden": "true" });
  show(canvas, picture, SIDE);
  return canvas;
}
