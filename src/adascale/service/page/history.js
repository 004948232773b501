// The last verdicts: those of this page with their pictures, and those that others asked for, without.

import { find, make } from "./elements.js";
import { show } from "./pictures.js";
import { classOf, nameOf, short } from "./text.js";

const MOST = 20;
const MOST_OTHERS = 8;
const SIDE = 48;

let own = []; // newest first
let others = [];
let pick = () => {};

export function start(onPick) {
  pick = onPick;
}

// The entry of a verdict that this page asked for.
export function add(row, picture) {
  const entry = { row, picture };
  own = [entry, ...own].slice(0, MOST);
  others = others.filter((one) => one.row.id !== row.id);
  return entry;
}

// The verdicts that the service lists, newest first. True if what others asked for has changed.
export function merge(rows) {
  const mine = new Set(own.map((entry) => entry.row.id));
  const known = new Map(others.map((entry) => [entry.row.id, entry]));
  const listed = rows.filter((row) => !mine.has(row.id)).slice(0, MOST_OTHERS);
  const changed = listed.length !== others.length || listed.some((row) => !known.has(row.id));
  others = listed.map((row) => known.get(row.id) ?? { row, picture: null });
  return changed;
}

export function clear() {
  own = [];
  others = [];
}

export function draw(chosen) {
  const held = document.activeElement?.dataset?.id;
  for (const [place, entries] of [["own", own], ["others", others]]) {
    find(place).hidden = !entries.length;
    find(place).querySelector("ol").replaceChildren(...entries.map((entry) => make("li", {}, line(entry, entry === chosen))));
  }
  find("history").hidden = !own.length && !others.length;
  if (held) find("history").querySelector(`button[data-id="${CSS.escape(held)}"]`)?.focus();
}

function line(entry, chosen) {
  const { row } = entry;
  const kind = row.error ? "wrong" : row.is_ood ? "unlike" : "like";
  const verdict = row.error ? "Not read" : row.is_ood ? "Unlike" : "Like";
  const about = row.error ? row.error : [classOf(row), `p = ${short(row.p_value)}`].filter(Boolean).join(" \u00b7 ");
  const inside = [thumbnail(entry), make("span", { class: "what" }, make("b", { title: nameOf(row) }, nameOf(row)), make("small", {}, about)), make("span", { class: `tag ${kind}` }, verdict)];
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
