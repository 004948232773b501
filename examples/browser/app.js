// The page: it takes pictures, asks the detector and says what it found. picture.js makes the network's input.
import * as ort from "./ort.wasm.min.mjs";
import { decode, normalised, seen } from "./picture.js";

const KEPT = 8; // verdicts in the list
const $ = (id) => document.getElementById(id);
const state = { session: null, record: null, alpha: 0.05, picture: null };

// -- The detector ---------------------------------------------------------------------------------------------------

async function json(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name} is missing (${answer.status})`);
  return answer.json();
}

async function load() {
  state.record = await json("record.json");
  ort.env.wasm.numThreads = 1; // threads would need the headers of cross-origin isolation
  ort.env.wasm.wasmPaths = new URL("./", import.meta.url).href;
  const options = { executionProviders: ["wasm"], logSeverityLevel: 3 };
  state.session = await ort.InferenceSession.create("detector.onnx", options);
}

/** The answer of the file for the input of one picture. */
async function ask(input, alpha) {
  const images = new ort.Tensor("float32", input, [1, ...state.record.input.shape]);
  const found = await state.session.run({ images, alpha: new ort.Tensor("float32", [alpha], []) });
  return {
    isOod: Boolean(found.is_ood.data[0]),
    score: Number(found.score.data[0]),
    pValue: Number(found.p_value.data[0]),
    prediction: Number(found.prediction.data[0]),
  };
}

// -- Words ----------------------------------------------------------------------------------------------------------

/** Two digits, and no more than needed: 0.42, 0.003, 0.05. */
const short = (x) => String(Number(x.toPrecision(2)));
const verdictWords = ({ isOod, pValue }) =>
  `${isOod ? "unlike" : "like"} the training images: p\u00a0=\u00a0${short(pValue)}`;
const className = (index) => state.record.class_names?.[index] ?? `class ${index}`;

function meaning({ pValue }) {
  const images = state.record.calibration.images;
  const higher = Math.round(pValue * (images + 1)) - 1;
  const count = higher === 0 ? "None" : String(higher);
  return `${count} of the ${images} calibration images ${higher === 1 ? "scores" : "score"} at least as high.`;
}

function say(words, kind = "", more = "") {
  $("verdict").className = kind;
  $("words").textContent = words;
  $("meaning").textContent = more;
}

function complain(error) {
  say(error.message, "wrong");
  $("details").hidden = true;
}

// -- Judging --------------------------------------------------------------------------------------------------------

/** The input of a picture; errors are sentences for people. */
async function opened(blob, name) {
  let pixels;
  try {
    pixels = await decode(blob);
  } catch {
    throw new Error(`${name} is not a picture, or a kind of picture that this browser cannot read.`);
  }
  const small = seen(pixels, state.record.input.preprocess);
  const [channels, height, width] = state.record.input.shape;
  if (small.height !== height || small.width !== width || small.channels !== channels)
    throw new Error(`${name} becomes ${small.width} x ${small.height}; this detector takes ${width} x ${height} only.`);
  return { name, small, input: normalised(small, state.record.input.preprocess), url: URL.createObjectURL(blob) };
}

let running = Promise.resolve();
/** One after the other: the detector answers one question at a time. */
function next(job) {
  running = running.then(job).catch(complain);
  return running;
}

/** `get` gives the file of the picture. */
const judge = (get, name) =>
  next(async () => {
    state.picture = null;
    const picture = await opened(await get(), name);
    state.picture = picture;
    await decide(picture);
    draw(picture.small);
    $("original").src = picture.url;
    $("original").alt = name;
    $("details").hidden = false;
    $("answer").scrollIntoView({ block: "nearest" }); // on a phone it is below the samples
  });

let waiting = false;
/** The picture that is shown, judged again; only for the last of several moves of alpha. */
function again() {
  if (waiting) return;
  waiting = true;
  next(async () => {
    waiting = false;
    if (state.picture) await decide(state.picture);
  });
}

async function decide(picture) {
  const alpha = state.alpha;
  const found = await ask(picture.input, alpha);
  Object.assign(picture, { found, alpha });
  document.body.dataset.answer = JSON.stringify({ ...found, alpha, name: picture.name });
  say(verdictWords(found), found.isOod ? "unlike" : "like", meaning(found));
  $("class").textContent = className(found.prediction);
  $("score").textContent = Number.isFinite(found.score) ? found.score.toPrecision(5) : String(found.score);
  note(picture);
}

function draw({ data, width, height, channels }) {
  const image = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    for (let i = 0; i < 3; i++) image.data[4 * at + i] = data[at * channels + (channels === 1 ? 0 : i)];
    image.data[4 * at + 3] = 255;
  }
  Object.assign($("seen"), { width, height });
  $("seen").getContext("2d").putImageData(image, 0, 0);
}

/** The picture's line in the list of verdicts, new or renewed. */
function note(picture) {
  const list = $("history").querySelector("ol");
  if (!picture.line) {
    picture.line = $("line").content.firstElementChild.cloneNode(true);
    picture.line.querySelector("img").src = picture.url;
    list.prepend(picture.line);
    while (list.children.length > KEPT) {
      URL.revokeObjectURL(list.lastElementChild.querySelector("img").src);
      list.lastElementChild.remove();
    }
  }
  const words = picture.line.querySelector("span");
  words.textContent = verdictWords(picture.found);
  words.className = picture.found.isOod ? "unlike" : "like";
  const said = `${picture.name}, network: ${className(picture.found.prediction)}, alpha = ${short(picture.alpha)}`;
  picture.line.querySelector("small").textContent = said;
  $("history").hidden = false;
}

// -- What people do -------------------------------------------------------------------------------------------------

async function take(files) {
  if (!state.session) return;
  if (!files.length) complain(new Error("There is no picture in what was dropped. Drop a picture file."));
  for (const file of files) await judge(() => file, file.name || "the pasted picture");
}

/** The slider runs evenly in the logarithm of alpha, from the least that can be promised to one half. */
const least = () => state.record.calibration.least_alpha;
const fromSlider = (place) => Number((least() * (0.5 / least()) ** (place / 1000)).toPrecision(2));
const toSlider = (alpha) => (1000 * Math.log(alpha / least())) / Math.log(0.5 / least());

/** What alpha promises. The comparison leaves room for two digits: 0.0068 stands for 1 / 147. */
function promise(alpha) {
  const { confidence, images } = state.record.calibration;
  const percent = (share) => `${Number((100 * share).toPrecision(2))} %`;
  const sure = confidence === null ? "On average" : `With ${percent(confidence)} confidence`;
  const words = `${sure}, at most ${percent(Math.max(alpha, least()))} of the pictures that are like the training images are called unlike.`;
  return alpha > 0.99 * least() ? words : `${words} ${images} calibration images cannot promise less.`;
}

function setAlpha(alpha, from) {
  const valid = alpha > 0 && alpha < 1;
  $("alpha").setAttribute("aria-invalid", String(!valid));
  if (!valid) {
    $("rate").textContent = "alpha has to be a number above 0 and below 1.";
    return;
  }
  state.alpha = alpha;
  if (from !== "alpha") $("alpha").value = String(alpha);
  if (from !== "slider") $("slider").value = String(toSlider(alpha));
  $("slider").setAttribute("aria-valuetext", `alpha ${alpha}`);
  $("rate").textContent = promise(alpha);
  again();
}

function listen() {
  $("file").addEventListener("change", async (event) => {
    await take([...event.target.files]);
    event.target.value = ""; // so that the same file can be chosen again
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    take([...event.dataTransfer.files]);
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) take([...event.clipboardData.files]);
  });
  // Single pixels of tiny pictures stay visible; larger pictures are smooth. Images do not pass this event on.
  document.addEventListener("load", ({ target }) => target.classList.toggle("tiny", target.naturalWidth < 64), true);
  $("alpha").addEventListener("input", (event) => setAlpha(event.target.valueAsNumber, "alpha"));
  $("slider").addEventListener("input", (event) => setAlpha(fromSlider(event.target.valueAsNumber), "slider"));
}

async function sample(address, name) {
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok) throw new Error(`${name} could not be loaded: is the web server still there?`);
  return answer.blob();
}

function offer(names) {
  const list = $("samples").querySelector("ul");
  for (const name of names) {
    const button = document.createElement("button");
    const image = Object.assign(new Image(), { src: `samples/${encodeURIComponent(name)}`, alt: "" });
    button.type = "button";
    button.append(image, name.replace(/\.\w+$/, ""));
    button.addEventListener("click", () => judge(() => sample(image.src, name), name));
    const item = document.createElement("li");
    item.append(button);
    list.append(item);
  }
  $("samples").hidden = names.length === 0;
}

async function start() {
  try {
    listen();
    await load();
    offer(await json("samples.json"));
  } catch (error) {
    document.body.dataset.state = "failed";
    say(`The detector could not be loaded: ${error.message}. Build the folder again with build.py.`, "wrong");
    return;
  }
  const { method, calibration, class_names: names } = state.record;
  const known = names ? ` It knows ${names.length} classes: ${names.slice(0, 10).join(", ")}${names.length > 10 ? ", ..." : "."}` : "";
  $("about").append(` The method is ${method}, calibrated on ${calibration.images} images.${known}`);
  setAlpha(calibration.alpha);
  for (const id of ["file", "slider", "alpha"]) $(id).disabled = false;
  document.body.dataset.state = "ready";
  say("Waiting for a picture.");
}

start();
