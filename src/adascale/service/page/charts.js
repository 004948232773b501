// The charts, as inline SVG in the width of their place. Colours come from the style sheet.

import { svg } from "./elements.js";
import { short } from "./text.js";

const HEIGHT = 200;
const TOP = 52;
const BOTTOM = 44;
const SIDE = 12;

const line = (name, x1, y1, x2, y2) => svg("line", { class: name, x1, y1, x2, y2 });

// Text that stays inside: near an end it begins or ends where it would be centred.
function text(name, x, y, words, width, size = 6.6) {
  const half = (words.length * size) / 2;
  const anchor = x - half < 2 ? "start" : x + half > width - 2 ? "end" : "middle";
  return svg("text", { class: name, x, y, "text-anchor": anchor }, words);
}

function canvas(place, height, label) {
  const width = Math.max(240, Math.round(place.clientWidth || 480));
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  place.replaceChildren(drawn);
  return [drawn, width];
}

// The label of the threshold, on the side where the line of the marker does not cross it; if there is room.
function beside(x, marker, width, words) {
  const long = 6.6 * words.length + 12;
  const right = marker <= x ? x + long < width : x - long < 0;
  return svg("text", { class: "threshold-label", x: right ? x + 6 : x - 6, y: TOP - 10, "text-anchor": right ? "start" : "end" }, words);
}

// Round values that divide an interval into about four parts.
function ticks(low, high) {
  const rough = (high - low) / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found.map((value) => Number(value.toPrecision(10)));
}

// The interval that is shown, and where the score is in it; a score far away is put at the end.
function range(edges, threshold, score) {
  const span = edges.at(-1) - edges[0] || 1;
  const low = Math.min(edges[0], threshold) - 0.04 * span;
  const high = Math.max(edges.at(-1), threshold) + 0.04 * span;
  const value = score ?? Infinity;
  if (value > high + 1.2 * span) return { low, high: high + 0.3 * span, at: high + 0.27 * span, beyond: "right" };
  if (value < low - 1.2 * span) return { low: low - 0.3 * span, high, at: low - 0.27 * span, beyond: "left" };
  return { low: Math.min(low, value - 0.06 * span), high: Math.max(high, value + 0.06 * span), at: value, beyond: null };
}

export function histogram(place, { calibration, threshold }, row) {
  const { edges, counts } = calibration;
  const { low, high, at, beyond } = range(edges, threshold, row.score);
  const side = row.is_ood ? "above" : "at or below";
  const label = `Histogram of the scores of ${calibration.n} ordinary images. This picture scores ${short(row.score, 3)}, `
    + `${side} the threshold ${short(threshold, 3)}.`;
  const [drawn, width] = canvas(place, HEIGHT, label);
  const x = (value) => SIDE + ((value - low) / (high - low)) * (width - 2 * SIDE);
  const ground = HEIGHT - BOTTOM;
  const tallest = Math.max(...counts, 1);
  const kind = row.is_ood ? "unlike" : "like";
  drawn.append(svg("rect", { class: "zone", x: x(threshold), y: TOP - 6, width: width - SIDE - x(threshold), height: ground - TOP + 6 }));
  counts.forEach((count, i) => {
    if (!count) return;
    const [left, right] = [x(edges[i]), x(edges[i + 1])];
    const height = Math.max(2, ((ground - TOP) * count) / tallest);
    const beyondIt = (edges[i] + edges[i + 1]) / 2 > threshold ? "bar beyond" : "bar";
    drawn.append(svg("rect", { class: beyondIt, x: left + 0.5, y: ground - height, width: Math.max(1, right - left - 1), height }));
  });
  drawn.append(line("axis", SIDE, ground, width - SIDE, ground));
  for (const tick of ticks(low, high)) {
    drawn.append(line("axis", x(tick), ground, x(tick), ground + 4), text("tick", x(tick), ground + 17, short(tick, 3), width));
  }
  drawn.append(svg("text", { class: "tick", x: SIDE, y: HEIGHT - 6 }, "score"));
  drawn.append(svg("text", { class: "tick", x: width - SIDE, y: HEIGHT - 6, "text-anchor": "end" }, "more unusual \u2192"));
  drawn.append(line("threshold", x(threshold), TOP - 20, x(threshold), ground));
  drawn.append(beside(x(threshold), x(at), width, `threshold ${short(threshold, 3)}`));
  drawn.append(line(`marker ${kind}`, x(at), TOP - 26, x(at), ground));
  drawn.append(svg("circle", { class: `marker ${kind}`, cx: x(at), cy: ground, r: 5 }));
  const arrow = { right: " \u2192", left: " \u2190" }[beyond] ?? "";
  drawn.append(text(`marker-label ${kind}`, x(at), TOP - 34, `this picture ${short(row.score, 3)}${arrow}`, width, 7.4));
  return beyond;
}

// How far the strongest activations moved, by rank; the first ones are those that count.
export function shift(place, { moved, each, counted }) {
  const height = 190;
  const most = moved.length * each;
  const label = `How far the ${most} strongest activations moved, from the strongest on: at first ${short(moved[0])}, `
    + `at last ${short(moved.at(-1))}.`;
  const [drawn, width] = canvas(place, height, label);
  const [top, ground, left] = [14, height - 40, 40];
  const tallest = Math.max(...moved) || 1;
  const wide = (width - left - 4) / moved.length;
  for (const tick of ticks(0, tallest)) {
    const y = ground - ((ground - top) * tick) / tallest;
    drawn.append(line("grid", left, y, width - 4, y));
    drawn.append(svg("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end" }, short(tick)));
  }
  moved.forEach((value, i) => {
    const tall = Math.max(1, ((ground - top) * value) / tallest);
    const name = i * each < counted ? "bar counted" : "bar";
    drawn.append(svg("rect", { class: name, x: left + i * wide + 0.5, y: ground - tall, width: Math.max(1, wide - 1), height: tall }));
  });
  drawn.append(line("axis", left, ground, width - 4, ground));
  drawn.append(svg("text", { class: "tick", x: left, y: ground + 17 }, "strongest"));
  drawn.append(svg("text", { class: "tick", x: width - 4, y: ground + 17, "text-anchor": "end" }, `rank ${most}`));
}

// A bar from 0, with a mark for what is usual.
export function bar(value, usual, most, name) {
  const percentOf = (part) => `${Math.max(0, Math.min(100, (100 * part) / most))}%`;
  return svg(
    "svg", { class: `meter ${name}`, "aria-hidden": "true", width: "100%", height: 14 },
    svg("rect", { class: "track", x: 0, y: 3, width: "100%", height: 8, rx: 4 }),
    svg("rect", { class: "fill", x: 0, y: 3, width: percentOf(value), height: 8, rx: 4 }),
    ...(usual === null ? [] : [svg("line", { class: "mark", x1: percentOf(usual), x2: percentOf(usual), y1: 0, y2: 14 })]),
  );
}

// One tick for each of the last verdicts, the newest at the right.
export function strip(place, rows) {
  const flagged = rows.filter((row) => row.is_ood).length;
  const [drawn, width] = canvas(place, 30, `${flagged} of the last ${rows.length} verdicts are flagged.`);
  const each = Math.min(12, width / Math.max(rows.length, 1));
  rows.forEach((row, i) => {
    const height = row.is_ood ? 26 : 12;
    const x = width - (i + 1) * each;
    drawn.append(svg("rect", { class: row.is_ood ? "unlike" : "like", x: x + 1, y: 28 - height, width: Math.max(1, each - 2), height, rx: 1.5 }));
  });
}
