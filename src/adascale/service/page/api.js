// Requests to the service. The token, if one is needed, stays in this tab.

const KEY = "adascale-token";

export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(`v1/${path}`, { ...options, headers: headers(options.headers) });
  } catch {
    throw new Problem("The service does not answer. Is it running?");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new Problem(inWords(response, answer), response.status);
}

function inWords(response, answer) {
  const told = answer?.detail ?? answer?.error;
  if (typeof told === "string") return told;
  if (response.status === 413) return "This picture is too large for the service.";
  return `The service answered ${response.status} ${response.statusText}`.trim() + ".";
}

const of = (detector) => `detector=${encodeURIComponent(detector)}`;

export const detectors = () => ask("detectors");
export const monitor = (detector) => ask(`monitor?${of(detector)}`);
export const recent = (detector, limit) => ask(`recent?${of(detector)}&limit=${limit}`);

export async function score(detector, file, name, explain) {
  const form = new FormData();
  form.append("image", file, name);
  const rows = await ask(`score?${of(detector)}&explain=${explain}`, { method: "POST", body: form });
  return rows[0];
}

export function feedback(id, label) {
  const body = JSON.stringify({ id, label });
  return ask("feedback", { method: "POST", body, headers: { "Content-Type": "application/json" } });
}
