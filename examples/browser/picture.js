// From a picture to the input of the network. The arithmetic is that of Pillow, which the Python package uses, so that
// the same pixels give the same input. A picture is {data, width, height, channels} with 8 bits a value, row by row.

/** A JPEG without its EXIF part: browsers turn a picture as EXIF says, Pillow does not. Others are as they were. */
async function unturned(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  if (bytes[0] !== 0xff || bytes[1] !== 0xd8) return blob;
  const parts = [bytes.subarray(0, 2)];
  let at = 2;
  while (bytes[at] === 0xff && bytes[at + 1] !== 0xda) { // segments, up to the pixels
    const end = bytes[at + 1] === 0xff ? at + 1 : at + 2 + 256 * bytes[at + 2] + bytes[at + 3];
    if (bytes[at + 1] !== 0xe1) parts.push(bytes.subarray(at, end));
    at = end;
  }
  return new Blob([...parts, bytes.subarray(at)], { type: "image/jpeg" });
}

/** The decoded RGBA pixels as they are stored, without colour management. */
export async function decode(blob) {
  const options = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const bitmap = await createImageBitmap(await unturned(blob), options);
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, bitmap.width, bitmap.height);
}

/** RGBA pixels in the channels of the network: three, or one of Pillow's luma. Transparency is dropped. */
export function coloured({ data, width, height }, channels) {
  const out = new Uint8ClampedArray(width * height * channels);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    const [red, green, blue] = [data[from], data[from + 1], data[from + 2]];
    if (channels === 1) {
      out[to++] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
    } else {
      out[to++] = red;
      out[to++] = green;
      out[to++] = blue;
    }
  }
  return { data: out, width, height, channels };
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));
const cubic = (x, a = -0.5) => {
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
};
/** Each filter: how far it reaches, and its weight at a distance. */
const FILTERS = {
  box: [0.5, (x) => (x > -0.5 && x <= 0.5 ? 1 : 0)],
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  hamming: [1, (x) => (Math.abs(x) < 1 ? sinc(x) * (0.54 + 0.46 * Math.cos(Math.PI * x)) : 0)],
  bicubic: [2, (x) => cubic(Math.abs(x))],
  lanczos: [3, (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0)],
};
const BITS = 22; // Pillow's weights are whole numbers: the weight times 2 ** 22

/** For each of `size` results along one side: the first value that counts, and the weights from there on. */
function weights(length, size, [reach, filter]) {
  const scale = length / size;
  const stretch = Math.max(1, scale);
  return Array.from({ length: size }, (_, place) => {
    const centre = (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach * stretch + 0.5));
    const end = Math.min(length, Math.trunc(centre + reach * stretch + 0.5));
    const inverse = 1 / stretch;
    const found = [];
    for (let at = first; at < end; at++) found.push(filter((at - centre + 0.5) * inverse));
    const sum = found.reduce((total, weight) => total + weight, 0);
    const whole = found.map((weight) => {
      const scaled = (sum === 0 ? weight : weight / sum) * 2 ** BITS;
      return Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    });
    return [first, whole];
  });
}

/** The filter along one side: across (the width) or down (the height). */
function pass({ data, width, height, channels }, size, across, filter) {
  const [wide, high] = across ? [size, height] : [width, size];
  const out = new Uint8ClampedArray(wide * high * channels); // values outside of 0 to 255 are clamped
  const table = weights(across ? width : height, size, filter);
  const step = across ? channels : width * channels;
  for (let y = 0, to = 0; y < high; y++) {
    for (let x = 0; x < wide; x++) {
      const [first, whole] = table[across ? x : y];
      const start = (across ? y * width + first : first * width + x) * channels;
      for (let channel = 0; channel < channels; channel++) {
        let sum = 2 ** (BITS - 1);
        for (let i = 0, at = start + channel; i < whole.length; i++, at += step) sum += data[at] * whole[i];
        out[to++] = sum >> BITS;
      }
    }
  }
  return { data: out, width: wide, height: high, channels };
}

function nearest({ data, width, height, channels }, wide, high) {
  const places = (length, size) => {
    const found = [];
    for (let i = 0, at = length / size / 2; i < size; i++, at += length / size) found.push(Math.trunc(at));
    return found;
  };
  const [columns, rows] = [places(width, wide), places(height, high)];
  const out = new Uint8ClampedArray(wide * high * channels);
  let to = 0;
  for (const y of rows) {
    for (const x of columns) {
      const at = (y * width + x) * channels;
      for (let channel = 0; channel < channels; channel++) out[to++] = data[at + channel];
    }
  }
  return { data: out, width: wide, height: high, channels };
}

/** The picture in another size, by the filter of this name. */
export function resize(picture, wide, high, interpolation) {
  if (wide === picture.width && high === picture.height) return picture;
  if (interpolation === "nearest") return nearest(picture, wide, high);
  const filter = FILTERS[interpolation];
  const across = wide === picture.width ? picture : pass(picture, wide, true, filter);
  return high === picture.height ? across : pass(across, high, false, filter);
}

const even = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)); // rounds as Python does

/** The middle of the picture; black where the picture is smaller. */
export function crop({ data, width, height, channels }, wide, high) {
  const [left, top] = [even((width - wide) / 2), even((height - high) / 2)];
  const out = new Uint8ClampedArray(wide * high * channels);
  for (let y = Math.max(0, -top); y < Math.min(high, height - top); y++) {
    for (let x = Math.max(0, -left); x < Math.min(wide, width - left); x++) {
      const from = ((y + top) * width + x + left) * channels;
      for (let channel = 0; channel < channels; channel++) out[(y * wide + x) * channels + channel] = data[from + channel];
    }
  }
  return { data: out, width: wide, height: high, channels };
}

/** The width and height to resize to: `size` is the shorter side, or [height, width]. */
function target({ width, height }, size) {
  if (Array.isArray(size)) return [size[1], size[0]];
  const long = Math.max(1, Math.trunc((size * Math.max(width, height)) / Math.min(width, height)));
  return width <= height ? [size, long] : [long, size];
}

/** What the network sees of RGBA pixels: coloured, resized and cropped as the record of the detector says. */
export function seen(pixels, preprocess) {
  const picture = coloured(pixels, preprocess.mean.length);
  const [wide, high] = target(picture, preprocess.size);
  if (wide * high > 50_000_000) throw new Error(`The picture is too long and thin: it would become ${wide} x ${high}.`);
  const resized = resize(picture, wide, high, preprocess.interpolation);
  if (preprocess.crop === null) return resized;
  const [tall, broad] = [preprocess.crop].flat().length === 2 ? preprocess.crop : [preprocess.crop, preprocess.crop];
  return crop(resized, broad, tall);
}

/** The normalised values, channel by channel, in single precision at each step as in Python. */
export function normalised({ data, width, height, channels }, { mean, std }) {
  const out = new Float32Array(data.length);
  const area = width * height;
  for (let channel = 0; channel < channels; channel++) {
    const [centre, spread] = [Math.fround(mean[channel]), Math.fround(std[channel])];
    for (let at = 0; at < area; at++) {
      const value = Math.fround(data[at * channels + channel] / 255);
      out[channel * area + at] = Math.fround(value - centre) / spread;
    }
  }
  return out;
}
