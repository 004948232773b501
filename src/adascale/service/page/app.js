// The page: pictures in, verdicts out.

import * as api from "./api.js";
import * as camera from "./camera.js";
import { find, make } from "./elements.js";
import * as history from "./history.js";
import * as live from "./live.js";
import { received, shrunk } from "./pictures.js";
import { clear, redraw, showAbout, showFeedback, showVerdict, shown } from "./verdict.js";
import { classOf, nameOf, percent, plural, words } from "./text.js";

const AT_ONCE = 3; // requests under way

let detectors = [];
let current = null;
let refresh = () => {};

function complain(words) {
  find("problem").textContent = words;
  find("problem").hidden = !words;
}

function say(words) {
  find("say").textContent = words;
}

async function load() {
  try {
    detectors = await api.detectors();
    find("login").hidden = true;
    document.body.dataset.state = "ready";
    complain("");
  } catch (problem) {
    document.body.dataset.state = "failed";
    find("login").hidden = problem.status !== 401;
    if (problem.status === 401) {
      complain(sessionStorage.length ? "The service does not know this token." : "");
      find("token").focus();
    } else {
      complain(problem.message);
      setTimeout(load, 5000);
    }
    return;
  }
  find("detector").replaceChildren(...detectors.map((one) => make("option", { value: one.name }, one.name)));
  find("which").hidden = detectors.length < 2;
  choose(detectors[0]);
}

function choose(detector) {
  current = detector;
  history.clear();
  clear();
  complain("");
  history.draw(null);
  showAbout(current);
  refresh();
}

// Every file is a request of its own, so that one bad file fails alone.
async function judge(files) {
  const given = [...files];
  if (!given.length || !current) return;
  const detector = current;
  complain("");
  document.body.dataset.state = "busy";
  find("answer").setAttribute("aria-busy", "true");
  say(`Looking at ${plural(given.length, "picture")} ...`);
  const found = new Array(given.length).fill(null);
  let next = 0;
  const worker = async () => {
    while (next < given.length) {
      const place = next;
      next += 1;
      found[place] = await judged(given[place], detector);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, given.length) }, worker));
  document.body.dataset.state = "ready";
  find("answer").removeAttribute("aria-busy");
  if (detector === current) await present(found, detector);
}

async function judged(file, detector) {
  const name = file.name || "pasted picture";
  try {
    const [row, picture] = await Promise.all([api.score(detector.name, file, name, explains(detector)), shrunk(file)]);
    return { row: { ...row, name: row.name || name }, picture };
  } catch (problem) {
    return { row: { name, error: problem.message }, picture: null, problem };
  }
}

// An exported file has no calibration scores and gives no explanations.
const explains = (detector) => Boolean(detector.calibration?.n);

async function present(found, detector) {
  const entries = await Promise.all([...found].reverse().map(listed));
  entries.reverse();
  const read = entries.filter((entry) => !entry.row.error);
  const failed = entries.filter((entry) => entry.row.error);
  complain(failures(failed));
  if (found.some(({ problem }) => problem?.status === 401)) find("login").hidden = false;
  if (read.length) await showVerdict(read[0], detector);
  history.draw(shown());
  say([summary(read), failures(failed)].filter(Boolean).join(" "));
  if (read.length && !failed.length) lookAtIt();
  refresh();
}

async function listed({ row, picture }) {
  const entry = history.add(row, picture);
  entry.seen ??= await received(row.explanation?.input);
  return entry;
}

function failures(failed) {
  if (!failed.length) return "";
  const { name, error } = failed[0].row;
  const more = failed.length > 1 ? ` ${plural(failed.length - 1, "more picture")} failed too.` : "";
  const reason = error.includes(name) ? error : `${name}: ${error}`;
  return `${reason.replace(/\.?$/, ".")}${more}`;
}

function summary(read) {
  if (!read.length) return "";
  if (read.length > 1) {
    const unlike = read.filter((entry) => entry.row.is_ood).length;
    return `${plural(read.length, "picture")}: ${unlike} unlike the training images.`;
  }
  const { row } = read[0];
  const sure = row.probability === null || row.probability === undefined ? "" : `, ${percent(row.probability)}`;
  return `${nameOf(row)}: ${words(row)}. The network says ${classOf(row)}${sure}.`;
}

async function pick(entry) {
  await showVerdict(entry, current);
  history.draw(entry);
  say(summary([entry]));
  lookAtIt();
}

// On a narrow screen the answer is below what was touched.
function lookAtIt() {
  if (matchMedia("(max-width: 60rem)").matches) find("answer").scrollIntoView({ block: "start" });
}

async function opinion(label) {
  const entry = shown();
  if (!entry) return;
  try {
    await api.feedback(entry.row.id, label);
    Object.assign(entry, { label, thanks: label === "known" ? "Noted: a known kind." : "Noted: an unknown kind." });
  } catch (problem) {
    entry.thanks = problem.message;
  }
  if (shown() === entry) showFeedback(entry);
}

function takePictures() {
  find("file").addEventListener("change", (event) => {
    judge(event.target.files);
    event.target.value = "";
  });
  addEventListener("paste", (event) => {
    const files = event.clipboardData?.files ?? [];
    if (files.length) judge(files);
    else if (event.target.id !== "token") complain("There is no picture in the clipboard.");
  });
  for (const kind of ["dragenter", "dragover"]) {
    addEventListener(kind, (event) => {
      event.preventDefault();
      document.body.classList.add("dragging");
    });
  }
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    if (event.dataTransfer.files.length) judge(event.dataTransfer.files);
    else complain("That was no file. Save the picture first, or copy it and paste it here.");
  });
  camera.start(judge);
}

function start() {
  takePictures();
  history.start(pick);
  find("detector").addEventListener("change", (event) => choose(detectors.find((one) => one.name === event.target.value)));
  find("mask").addEventListener("change", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(find("answer"));
  for (const button of find("feedback").querySelectorAll("button")) {
    button.addEventListener("click", () => opinion(button.dataset.label));
  }
  find("login").addEventListener("submit", (event) => {
    event.preventDefault();
    api.setToken(find("token").value.trim());
    find("token").value = "";
    load();
  });
  refresh = live.start(() => current, (rows) => history.merge(rows) && history.draw(shown()));
  load();
}

start();
