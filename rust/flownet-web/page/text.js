// Numbers and times for people, and elements of the page. What comes from a job is put in as text, never as HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(made, attributes);
  made.append(...children);
  return made;
}

export function set(target, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (target.getAttribute(name) !== String(value)) target.setAttribute(name, value);
  }
}

/** Change a text only where it is another: what did not change is not drawn again, nor read out again. */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function show(target, isShown) {
  if (target.hidden === isShown) target.hidden = !isShown;
}

export const count = (number) => Math.round(number).toLocaleString("en-US");

/** 950, 1.9 M: three digits. */
function scaled(number, steps, base) {
  let step = 0;
  while (Math.abs(number) >= base && step < steps.length - 1) {
    number /= base;
    step += 1;
  }
  const digits = step === 0 ? (number >= 10 || Number.isInteger(number) ? 0 : 1) : number >= 100 ? 0 : 1;
  return `${number.toFixed(digits)} ${steps[step]}`.trimEnd();
}

export const amount = (number) => scaled(number, ["", "k", "M", "G", "T"], 1000);
/** A number of a unit that nobody here knows. */
export const figure = (number) => Math.abs(number) < 1e6 ? number.toLocaleString("en", { maximumSignificantDigits: 6 }) : amount(number);
export const rate = (number) => `${amount(number)}/s`;
export const bytes = (number) => scaled(number, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
export const percent = (share) => `${Math.round(share * 100)} %`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (size < 1) return `${(seconds * 1000).toFixed(0)} ms`;
  if (size < 60) return `${seconds.toFixed(1)} s`;
  if (size < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (size < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${amount(seconds / 86400)} d`;
}

// JSON's numbers are doubles here: the end of time is rounded up.
const END_OF_TIME_MS = 2 ** 63;

export function eventTime(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms >= END_OF_TIME_MS) return "at its end";
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? count(ms) : date.toISOString().replace("T", " ").replace("Z", "");
}

/** Words for back-pressure, as the original's monitor has them. */
export const pressure = (share) => (share > 0.5 ? "high" : share > 0.1 ? "low" : "ok");

/** A share of the time with each of its names, in the order in which they are drawn. */
export const SHARES = ["busy", "back_pressured", "interpreter", "idle"];
export const className = (share) => share.replace("_", "-");

/** What they are made of. */
const PARTS = {
  busy: ["python", "serialising", "rust"],
  back_pressured: ["waiting_for_credit", "waiting_for_pool"],
  idle: ["waiting_for_barrier"],
};
/** What is drawn of them, in this order: it sums to the whole. */
export const DRAWN = [...PARTS.busy, ...SHARES.filter((share) => share !== "busy")];
export const keyName = (share) => (PARTS.busy.includes(share) ? `busy: ${words(share)}` : share.replace("_", "-"));
const words = (part) => ({ python: "Python", rust: "Rust" })[part] ?? part.replaceAll("_", " ");

/** The parts of a share that are worth a word. */
export const partsText = (shares, share) =>
  (PARTS[share] ?? []).filter((part) => shares[part] > 0.005).map((part) => `${percent(shares[part])} ${words(part)}`);
