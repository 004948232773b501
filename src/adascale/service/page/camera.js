// A picture from the camera, in a dialog. The camera is off as soon as the dialog closes.

import { find } from "./elements.js";

let stream = null;

function stop() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  find("video").srcObject = null;
  find("take").disabled = true;
}

function reason(error) {
  if (error.name === "NotAllowedError") return "The browser does not allow this page to use the camera.";
  if (error.name === "NotFoundError") return "No camera was found.";
  return "The camera cannot be used.";
}

function works(it) {
  find("video").hidden = find("take").hidden = !it;
}

async function open() {
  const dialog = find("shot");
  find("shot-note").textContent = "Starting the camera ...";
  works(true);
  dialog.showModal();
  try {
    if (!navigator.mediaDevices) throw Object.assign(new Error(), { name: "Insecure" });
    const found = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
    if (!dialog.open) {
      found.getTracks().forEach((track) => track.stop());
      return;
    }
    stream = found;
    find("video").srcObject = stream;
    await find("video").play();
    find("shot-note").textContent = "";
    find("take").disabled = false;
    find("take").focus();
  } catch (error) {
    stop();
    works(false);
    find("shot-note").textContent = error.name === "Insecure" ? "Browsers open the camera only for https or localhost." : reason(error);
  }
}

async function take(judge) {
  const video = find("video");
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.95));
  find("shot").close();
  const time = new Date().toTimeString().slice(0, 8).replaceAll(":", ".");
  if (blob) judge([new File([blob], `camera ${time}.jpg`, { type: "image/jpeg" })]);
}

export function start(judge) {
  find("camera").addEventListener("click", open);
  find("take").addEventListener("click", () => take(judge));
  find("leave").addEventListener("click", () => find("shot").close());
  find("shot").addEventListener("close", stop);
}
