// The last verdicts: those of this page with their pictures, and those of the service's other users without.

import { find, make } from "./elements.js";
import { show } from "./pictures.js";
import { classOf, short } from "./text.js";

const MOST = 12;
const SIDE = 48;

let entries = []; // newest first
let pick = () => {};

export function start(onPick) {
  pick = onPick;
}

// The entry of this verdict, at the front; the service may have listed it before its answer came.
export function add(row, picture = null) {
  const known = row.id ? entries.find((one) => one.row.id === row.id) : undefined;
  const entry = Object.assign(known ?? {}, { row: { ...known?.row, ...row }, picture });
  entries = [entry, ...entries.filter((one) => one !== entry)].slice(0, MOST);
  return entry;
}

// Verdicts that the service lists, newest first. True if one of them is new here.
export function merge(rows) {
  const known = new Set(entries.map((entry) => entry.row.id));
  const fresh = rows.filter((row) => !known.has(row.id)).reverse();
  for (const row of fresh) add(row);
  return fresh.length > 0;
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
