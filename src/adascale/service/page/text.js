// Numbers and verdicts in words.

const LEAST = 1e-4;

// Two significant digits, without an exponent where that is short.
export function short(value, digits = 2) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "not finite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < LEAST || size >= 1e6) return value.toExponential(digits - 1);
  return size >= 10 ** digits ? grouped(Math.round(value)) : String(Number(value.toPrecision(digits)));
}

export const grouped = (count) => count.toLocaleString("en");

export function percent(share) {
  if (share === null || share === undefined) return "?";
  const value = 100 * share;
  if (value > 99.9 && value < 100) return "> 99.9\u00a0%";
  return `${value >= 99.5 || value === 0 ? Number(value.toFixed(1)) : Number(value.toPrecision(2))}\u00a0%`;
}

export const plural = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;

export const words = (row) =>
  `${row.is_ood ? "Unlike the training images" : "Like the training images"}: p = ${short(row.p_value)}`;

// Where the classes have no names, their numbers stand for them.
export function classOf({ class: name, prediction }) {
  const found = name ?? prediction ?? "";
  return /^\d+$/.test(found) ? `class ${found}` : String(found);
}

// A picture without a name is called by its time.
export function nameOf({ name, time }) {
  if (name) return name;
  return time ? `picture of ${new Date(1000 * time).toTimeString().slice(0, 8)}` : "a picture";
}

// An interval of shares.
export function between(low, high) {
  if (low < 0.0005) return `at most ${percent(high)}`;
  return high > 0.995 ? `at least ${percent(low)}` : `${percent(low)} to ${percent(high)}`;
}

// What the p-value means: p = (1 + images at least as unusual) / (n + 1).
export function meaning(row, detector) {
  const n = detector.calibration?.n;
  if (!n) return `About ${percent(row.p_value)} of ordinary images look at least this unusual.`;
  const as = Math.round(row.p_value * (n + 1)) - 1;
  if (as <= 0) return `None of the ${plural(n, "ordinary image")} used to set the threshold looks this unusual.`;
  const verb = as === 1 ? "looks" : "look";
  return `Of the ${plural(n, "ordinary image")} used to set the threshold, ${grouped(as)} ${verb} at least this unusual.`;
}

// The promise itself; what it means for one detector follows after a semicolon.
export const promise = (guarantee) => `The promise: ${lower(guarantee.split("; ")[0].replace(/\.$/, ""))}.`;

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);
