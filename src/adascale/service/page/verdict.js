// One verdict in full: words, classes, where the score lies, what the methods saw.

import * as charts from "./charts.js";
import { facts, find, make } from "./elements.js";
import { mark, received, show } from "./pictures.js";
import { classOf, grouped, meaning, nameOf, percent, plural, promise, short, words } from "./text.js";

const HOW = {
  random: "at random places",
  trivial: "where the network looks least",
  salient: "where the network looks most",
  all: "everywhere",
};
const NAMES = { adascale_a: "AdaSCALE-A", adascale_l: "AdaSCALE-L", fdbd: "fDBD", gen: "GEN", vim: "ViM", knn: "KNN" };
const PICTURE = 176;

let drawn = null; // what is shown, to be drawn again in another width

export function showVerdict(entry, detector) {
  const { row } = entry;
  drawn = { entry, detector };
  find("empty").hidden = true;
  find("verdict").hidden = false;
  find("verdict").className = row.is_ood ? "unlike" : "like";
  find("name").textContent = nameOf(row);
  find("words").textContent = words(row);
  find("meaning").textContent = meaning(row, detector);
  find("promise").textContent = promise(detector.guarantee);
  showClasses(row);
  showMembers(row.explanation);
  find("where").hidden = !detector.calibration?.counts?.length || detector.threshold === null;
  find("steps").hidden = !row.explanation?.adascale;
  if (row.explanation?.adascale) showSteps(row.explanation.adascale);
  showFeedback(entry);
  return redraw();
}

// Whatever depends on the width or on light and dark.
export async function redraw() {
  if (!drawn) return;
  const { entry, detector } = drawn;
  const { row } = entry;
  entry.seen ??= await received(row.explanation?.input);
  if (drawn?.entry !== entry) return; // another one was chosen meanwhile
  const picture = entry.picture ?? entry.seen;
  find("picture").hidden = !picture;
  find("picture").setAttribute("aria-label", `The picture ${nameOf(row)}`);
  if (picture) show(find("picture"), picture, PICTURE);
  if (!find("where").hidden) {
    const beyond = charts.histogram(find("histogram"), detector, row);
    find("histogram-note").textContent = `Bars: ${plural(detector.calibration.n, "ordinary image")} that set the threshold. `
      + `Pictures beyond it are flagged.${beyond ? " This picture lies far outside the chart." : ""}`;
  }
  const steps = row.explanation?.adascale;
  if (!steps) return;
  charts.shift(find("shift"), steps.shift);
  const seen = find("seen");
  seen.hidden = !entry.seen;
  find("overlay").hidden = !entry.seen || !steps.mask;
  if (!entry.seen) return;
  show(seen, entry.seen, 240);
  seen.setAttribute("aria-label", `The picture as the network got it${find("mask").checked && steps.mask ? ", with the changed pixels marked" : ""}`);
  if (steps.mask && find("mask").checked) mark(seen, steps.mask, getComputedStyle(seen).getPropertyValue("--mask"));
}

function showClasses(row) {
  const found = row.explanation?.classes;
  const known = found?.length ? found : [{ class: classOf(row), prediction: row.prediction, probability: row.probability ?? null }];
  find("classes").replaceChildren(
    ...known.map((one) => {
      const share = one.probability === null ? "" : percent(one.probability);
      const line = make("li", {}, make("span", {}, classOf(one)), make("b", {}, share));
      if (one.probability !== null) line.append(charts.bar(one.probability, null, 1, "plain"));
      return line;
    }),
  );
}

function showMembers(explanation) {
  const members = explanation?.members ?? [];
  find("evidence").hidden = !members.length;
  const most = Math.max(...members.map((one) => Math.max(one.adds ?? 0, one.usual)), 1e-9);
  find("members").replaceChildren(
    ...members.map((one) => {
      const name = make("span", {}, NAMES[one.name] ?? one.name);
      if (one.name === explanation.loudest) name.append(make("em", {}, "loudest"));
      const adds = make("b", {}, one.adds === null ? "unlimited" : `+${short(one.adds)}`);
      adds.append(make("span", { class: "hidden" }, `, usual ${short(one.usual)}`));
      return make("li", {}, name, adds, charts.bar(one.adds ?? most, one.usual, most, one.name === explanation.loudest ? "loud" : "plain"));
    }),
  );
}

function showSteps(steps) {
  const share = percent(steps.values / steps.of);
  find("seen-note").textContent = `${grouped(steps.values)} of ${plural(steps.of, "pixel value")} (${share}) were changed by `
    + `\u00b1${short(steps.epsilon)}, ${HOW[steps.pixels] ?? ""}.`;
  const { counted, activation, moved } = steps.shift;
  find("shift-note").textContent = `How far the strongest activations moved. The strongest, ${short(activation[0])}, `
    + `moved by ${short(moved[0])}. ${counted === 1 ? "Only this one counts" : `The first ${counted} count`} for Q.`;
  const chain = [
    ["Movement", short(steps.q_prime, 3), `Q\u2032, from Q = ${short(steps.q, 3)} and C\u2092 = ${short(steps.c_o, 3)}; usual ${short(steps.usual, 3)}`],
    ["Rank", `${steps.rank} of ${steps.reference}`, `F = ${short(steps.share)}: as many ordinary images move at most as much`],
    ["Percentile", short(steps.percentile, 3), `p, from ${short(steps.p_min, 3)} (moved much) to ${short(steps.p_max, 3)} (moved little)`],
    ["Scaling", short(steps.ratio, 4), "r: all activations over those above the percentile"],
    ["Energy", `${short(steps.energy, 3)} \u2192 ${short(steps.scaled_energy, 3)}`, "before and after scaling; a low one is unusual"],
  ];
  find("chain").replaceChildren(
    ...chain.map(([name, value, about]) => make("li", {}, make("span", {}, name), make("b", {}, value), make("small", {}, about))),
  );
}

export function showFeedback(entry) {
  find("feedback").hidden = !entry.row.id;
  for (const button of find("feedback").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(entry.label === button.dataset.label));
  }
  find("thanks").textContent = entry.thanks ?? "";
}

export function showAbout(detector) {
  const [method, input] = [NAMES[detector.method] ?? detector.method, detector.input?.shape];
  facts(find("about").querySelector("dl"), [
    ["Method", method],
    ["Setting", detector.setting ?? "not known"],
    ["Promise", detector.guarantee],
    ["Flagged", `pictures with a p-value of at most ${short(detector.level ?? detector.alpha)}`],
    ...(input ? [["Input", `${input.join(" \u00d7 ")} values`]] : []),
    ...(detector.classes?.length ? [["Classes", detector.classes.slice(0, 20).join(", ") + (detector.classes.length > 20 ? ` and ${detector.classes.length - 20} more` : "")]] : []),
  ]);
}

export function shown() {
  return drawn?.entry ?? null;
}

export function clear() {
  drawn = null;
  find("empty").hidden = false;
  find("verdict").hidden = true;
}
