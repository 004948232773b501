// Pictures on canvases: no address of a picture is needed, and nothing leaves the page.

const LONGEST = 640;

// A canvas of at most 640 pixels, or null if this browser cannot read the file.
export async function shrunk(file) {
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
    return canvas;
  } catch {
    return null;
  }
}

const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

// The picture of an explanation, which comes as a data URL.
export function received(input) {
  if (!input) return Promise.resolve(null);
  const [kind, data] = input.picture.split(";base64,");
  return shrunk(new Blob([bytes(data)], { type: kind.slice("data:".length) }));
}

// Draw into a canvas of this many pixels a side; small pictures keep their pixels.
export function show(canvas, picture, side) {
  const small = Math.max(picture.width, picture.height) <= 64;
  const dots = Math.round(side * Math.min(2, devicePixelRatio || 1));
  const scale = dots / Math.max(picture.width, picture.height);
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = !small;
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
}

// Mark the pixels of a mask, one bit each, over what the canvas shows.
export function mark(canvas, mask, colour) {
  const bits = bytes(mask.bits);
  const context = canvas.getContext("2d");
  const across = canvas.width / mask.width;
  const down = canvas.height / mask.height;
  context.fillStyle = colour;
  context.globalAlpha = across < 3 ? 0.75 : 0.9;
  const gap = across >= 8 ? across / 4 : 0;
  for (let place = 0; place < mask.width * mask.height; place += 1) {
    if (!(bits[place >> 3] & (128 >> (place & 7)))) continue;
    const x = (place % mask.width) * across + gap;
    const y = Math.floor(place / mask.width) * down + gap;
    context.fillRect(x, y, Math.max(1, across - 2 * gap), Math.max(1, down - 2 * gap));
  }
  context.globalAlpha = 1;
}
