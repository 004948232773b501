// What the service sees now: flag rate, share of unknown images, alarms. Asked every few seconds while the page is seen.

import * as api from "./api.js";
import * as charts from "./charts.js";
import { facts, find, make } from "./elements.js";
import { between, grouped, percent } from "./text.js";

const PAUSE = 3000;
const LONGEST = 30000;
const LISTED = 30;
const ENOUGH = 20; // images, before which an estimate of the share says nothing
const NAMES = {
  unusual: "Unusual pictures",
  typical: "Too typical pictures",
  repeated: "Repeated pictures",
  classes: "Mix of classes",
};

let timer = 0;
let pause = PAUSE;
let round = 0; // answers of an earlier round are out of date
let told = ""; // the alarms that were announced

// detector: says which one is looked at. news: is given the last verdicts of the service.
export function start(detector, news) {
  const again = () => {
    clearTimeout(timer);
    if (!document.hidden) look(detector, news, again);
  };
  document.addEventListener("visibilitychange", again);
  again();
  return again;
}

async function look(detector, news, again) {
  round += 1;
  const mine = round;
  const asked = detector();
  try {
    if (asked) {
      const [summary, rows] = await Promise.all([api.monitor(asked.name), api.recent(asked.name, LISTED)]);
      if (mine !== round) return;
      draw(summary, rows, asked);
      news(rows);
    }
    pause = PAUSE;
  } catch (problem) {
    if (mine !== round) return;
    pulse("lost", problem.status === 401 ? "A token is needed" : "Not connected");
    pause = Math.min(LONGEST, 2 * pause);
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(again, pause);
}

function pulse(state, words) {
  find("pulse").dataset.state = state;
  if (find("pulse").lastElementChild.textContent !== words) find("pulse").lastElementChild.textContent = words;
}

function draw(summary, rows, detector) {
  const seen = summary.images_seen ?? summary.images ?? detector.images_seen ?? 0;
  const alarms = byName(summary.alarms ?? []);
  const raised = alarms.filter((alarm) => alarm.raised);
  pulse(raised.length ? "alarm" : "calm", raised.length ? "Alarm" : alarms.length ? "No alarm" : "Connected");
  const rate = summary.flag_rate ?? null;
  const share = summary.ood_share;
  facts(find("live").querySelector("dl"), [
    ["Seen", grouped(seen)],
    ["Flagged", rate === null ? "\u2013" : percent(rate)],
    ["Unknown kinds", share && share.images >= ENOUGH ? between(share.low, share.high) : "\u2013"],
  ]);
  find("strip").hidden = !rows.length;
  if (rows.length) charts.strip(find("strip"), rows.filter((row) => !row.error));
  find("alarms").replaceChildren(...alarms.map(line));
  find("watch").textContent = seen
    ? `If all pictures were ordinary, about ${percent(detector.level ?? detector.alpha)} would be flagged.${alarms.length ? " A full bar raises an alarm." : ""}`
    : "Nothing has been seen yet.";
  banner(raised);
}

// Each alarm comes in two kinds; the one that is nearer to its limit is shown.
function byName(alarms) {
  const found = new Map();
  for (const alarm of alarms) {
    const one = { ...alarm, filled: filled(alarm) };
    const known = found.get(one.name);
    if (!known || one.raised > known.raised || (one.raised === known.raised && one.filled > known.filled)) found.set(one.name, one);
  }
  return [...found.values()];
}

// How near the evidence is to the limit, on a logarithmic scale.
function filled({ evidence, limit, raised }) {
  if (raised) return 1;
  return Math.max(0, Math.min(1, Math.log(Math.max(evidence, 1)) / Math.log(limit)));
}

function line(alarm) {
  const state = alarm.raised ? "raised" : alarm.filled > 0.5 ? "rising" : "quiet";
  const words = make("small", {}, alarm.raised ? sentence(alarm) : "");
  const inside = [make("span", {}, NAMES[alarm.name] ?? alarm.name), make("b", {}, state), charts.bar(alarm.filled, null, 1, alarm.raised ? "loud" : "plain")];
  return make("li", { class: state }, ...inside, ...(alarm.raised ? [words] : []));
}

function sentence(alarm) {
  const words = alarm.words ?? alarm.says ?? "the traffic has changed";
  const since = alarm.since ? `, probably since image ${grouped(alarm.since)}` : "";
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}${since}.`;
}

// Said once: a screen reader would repeat a text that is replaced every few seconds.
function banner(raised) {
  const parts = raised.map((alarm) => `${NAMES[alarm.name] ?? alarm.name}${alarm.since ? ` since image ${grouped(alarm.since)}` : ""}`);
  const words = parts.join("; ");
  if (words === told) return;
  told = words;
  const more = make("a", { href: "#live" }, "See the traffic");
  find("alarm").hidden = !words;
  find("alarm").replaceChildren(...(words ? [make("strong", {}, "The traffic has changed."), ` ${words}. `, more] : []));
}
