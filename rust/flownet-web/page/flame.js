// Samples of a subtask as a flame graph: each frame lies on the one that led to it, as wide as the samples in it.
//
// Frames are buttons of HTML, placed in percent of the width. Of a graph those in view are there: what is too narrow to be seen
// is not made, and comes when one zooms in. Names are a user's and are put in as text.

import { count, element, percent, pressure, say, show } from "./text.js";

const ROW_PIXELS = 28;
/** Of the width: below it a frame is not made. */
const NARROWEST = 0.002;
const PROGRESS_EVERY_MS = 200;
const MOST_SECONDS = 60;

const STATES = {
  busy: "busy in Rust",
  missed: "busy, over before it was seen",
  interpreter: "waiting for the interpreter",
  soft_back_pressured: "waiting for output, between records",
  hard_back_pressured: "waiting for output, within a record",
  idle: "idle",
  awaiting: "waiting for calls of its functions",
  aligning: "waiting for sources it is aligned with",
  waiting_for_barrier: "idle, with inputs that wait for the barriers of others",
};

/** What a subtask is sampled with, and where the samples found it. */
export class Flame {
  constructor(place) {
    this.place = place;
    this.of = "";
    this.asking = null;
    this.samples = numberInput(100, 1, 1000);
    this.every = numberInput(50, 10, 1000);
    this.start = element("button", { type: "submit" }, "Sample");
    this.leave = element("button", { type: "button", onclick: () => this.asking?.abort() }, "Leave it");
    this.progress = element("progress", { max: 1, value: 0, "aria-label": "samples taken" });
    this.said = element("p", { class: "facts", role: "status" });
    this.graph = element("div", { class: "flame", role: "group", onkeydown: (event) => this.move(event) });
    this.graph.setAttribute("aria-label", "Flame graph: arrow keys go from frame to frame, Enter zooms in, Escape out");
    this.detail = element("p", { class: "facts flame-detail" });
    const fields = [label("Samples", this.samples), label("milliseconds apart", this.every), this.start, this.progress, this.leave];
    this.form = element("form", { class: "flame-form", onsubmit: (event) => this.ask(event) }, ...fields);
    this.title = element("h3");
    this.place.append(this.title, this.form, this.said, this.graph, this.detail);
    this.clear();
    show(this.place, false);
  }

  /** Turn to a subtask, or to none; what is under way for another one is left. */
  look(job, task, subtask) {
    show(this.place, subtask !== null);
    const of = JSON.stringify([job, task, subtask]);
    if (of === this.of) return;
    this.asking?.abort();
    this.asking = null;
    this.of = of;
    this.path = `/api/v1/jobs/${encodeURIComponent(job)}/flame/${task}/${subtask}`;
    say(this.title, `Where subtask ${count(subtask ?? 0)} is found by samples`);
    this.clear();
  }

  clear() {
    say(this.said, "");
    say(this.detail, "");
    this.root = null;
    this.graph.replaceChildren();
    show(this.graph, false);
    this.asks(false);
  }

  asks(isAsking) {
    show(this.progress, isAsking);
    show(this.leave, isAsking);
    this.start.disabled = isAsking;
  }

  async ask(event) {
    event.preventDefault();
    const [samples, every] = [this.samples.valueAsNumber, this.every.valueAsNumber];
    const whole = (samples * every) / 1000;
    this.every.setCustomValidity(whole > MOST_SECONDS ? `${whole} s in all: at most ${MOST_SECONDS} s` : "");
    if (!this.form.reportValidity()) return;
    this.clear();
    this.asks(true);
    const asking = new AbortController();
    this.asking = asking;
    const began = performance.now();
    const tell = () => {
      const passed = Math.min(1, (performance.now() - began) / 1000 / whole);
      this.progress.value = passed;
      say(this.said, passed < 1 ? `about ${count(passed * samples)} of ${count(samples)} samples` : "the last sample is taken");
    };
    const ticks = setInterval(tell, PROGRESS_EVERY_MS);
    const answer = await asked(`${this.path}?samples=${samples}&every_ms=${every}`, asking.signal);
    clearInterval(ticks);
    if (this.asking !== asking) return;
    this.asking = null;
    this.asks(false);
    if (answer.frames) this.take(answer);
    else say(this.said, answer.error);
  }

  take(answer) {
    say(this.said, sentence(answer));
    this.root = treeOf(answer);
    show(this.graph, answer.taken > 0);
    this.zoom(this.root);
  }

  /** Draw a frame as wide as the graph, on those that led to it. */
  zoom(frame, isFocused = false) {
    this.zoomed = frame;
    this.buttons = new Map();
    const behind = [];
    for (let below = frame.below; below; below = below.below) behind.unshift(below);
    behind.forEach((one) => this.draw(one, 0, 1, true));
    this.drawAll(frame, 0, 1);
    const drawn = [...this.buttons.keys()];
    this.rows = Math.max(...drawn.map((one) => one.depth)) + 1;
    this.graph.style.height = `${this.rows * ROW_PIXELS}px`;
    this.graph.replaceChildren(...this.buttons.values());
    this.enter(frame, isFocused);
  }

  drawAll(frame, from, wide) {
    this.draw(frame, from, wide, false);
    let left = from;
    for (const child of frame.on) {
      const share = child.samples / this.zoomed.samples;
      if (share >= NARROWEST) this.drawAll(child, left, share);
      left += share;
    }
  }

  draw(frame, from, wide, isBehind) {
    const button = element("button", {
      type: "button",
      class: `${frame.kind}${isBehind ? " behind" : ""}`,
      title: frame.said,
      "aria-label": frame.said,
      tabindex: "-1",
      onclick: () => this.zoom(frame, true),
      onfocus: () => this.enter(frame, false),
      onmouseenter: () => say(this.detail, frame.said),
    });
    button.append(frame.name);
    button.style.left = `${(from * 100).toFixed(3)}%`;
    button.style.width = `${(wide * 100).toFixed(3)}%`;
    button.style.top = `${frame.depth * ROW_PIXELS}px`;
    this.buttons.set(frame, button);
  }

  /** The frame that Tab comes to. */
  enter(frame, isFocused) {
    const button = this.buttons.get(frame);
    if (!button) return;
    if (this.entered) this.entered.tabIndex = -1;
    this.entered = button;
    this.at = frame;
    button.tabIndex = 0;
    say(this.detail, frame.said);
    if (isFocused) button.focus();
  }

  move(event) {
    const to = this.next(event.key);
    if (to === undefined) return;
    event.preventDefault();
    if (!to) return;
    if (event.key === "Escape" || !this.buttons.has(to)) this.zoom(to, true);
    else this.enter(to, true);
  }

  /** Where a key leads: undefined if it is none of ours, null if there is nothing. */
  next(key) {
    const { at } = this;
    const beside = (step) => at.below?.on[at.below.on.indexOf(at) + step] ?? null;
    if (key === "ArrowDown") return at.on[0] ?? null;
    if (key === "ArrowUp") return at.below;
    if (key === "ArrowLeft") return beside(-1);
    if (key === "ArrowRight") return beside(1);
    if (key === "Escape") return this.zoomed.below;
    return undefined;
  }
}

/** An answer, or why there is none; one that was left says so. */
async function asked(path, signal) {
  try {
    return await (await fetch(path, { signal })).json();
  } catch {
    return { error: signal.aborted ? "It was left." : "Nobody answers." };
  }
}

function numberInput(value, min, max) {
  return element("input", { type: "number", value, min, max, step: 1, required: true, inputmode: "numeric", oninput: (event) => event.target.setCustomValidity("") });
}

const label = (text, input) => element("label", {}, `${text} `, input);

function sentence(answer) {
  const taken = `${count(answer.taken)} of ${count(answer.asked)} samples in ${answer.seconds.toFixed(1)} s`;
  const ended = answer.has_ended ? "; it has ended meanwhile" : "";
  if (answer.back_pressured === null) return `${taken}${ended}.`;
  const word = pressure(answer.back_pressured).toUpperCase();
  const ledger = answer.ledger_back_pressured === null ? "" : `, in ${percent(answer.ledger_back_pressured)} of the time by its ledger (${pressure(answer.ledger_back_pressured).toUpperCase()})`;
  return `${taken}${ended}. Back-pressure ${word}: it waits for output in ${percent(answer.back_pressured)} of the samples${ledger}.`;
}

/** Frames with those on them, those with most samples first. */
function treeOf({ frames, taken }) {
  const root = { name: "all samples", kind: "root", samples: taken, below: null, on: [], depth: 0, said: `all ${count(taken)} samples` };
  const made = [];
  for (const frame of frames) {
    const below = frame.below === null ? root : made[frame.below];
    made.push({ ...named(frame), samples: frame.samples, below, on: [], depth: below.depth + 1 });
    below.on.push(made.at(-1));
  }
  for (const one of [root, ...made]) one.on.sort((a, b) => b.samples - a.samples);
  for (const one of made) {
    const own = one.samples - one.on.reduce((sum, child) => sum + child.samples, 0);
    const share = `${count(one.samples)} of ${count(taken)} samples, ${percent(one.samples / taken)}`;
    one.said = `${one.full}: ${share}${own && own < one.samples ? `; ${count(own)} in itself` : ""}`;
  }
  return root;
}

function named(frame) {
  if (frame.state !== null) {
    const name = STATES[frame.state] ?? frame.state.replaceAll("_", " ");
    return { name, full: name, kind: `waits ${stateClass(frame.state)}` };
  }
  if (!frame.file) return { name: frame.function, full: frame.function, kind: "function" };
  const file = frame.file.split("/").slice(-2).join("/");
  const tone = [...frame.file].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 4, 0);
  return { name: `${frame.function} ${file}:${frame.line}`, full: `${frame.function}, ${frame.file}:${frame.line}`, kind: `function tone-${tone}` };
}

function stateClass(state) {
  if (state.includes("back_pressured")) return "back-pressured";
  if (state === "interpreter") return state;
  return ["idle", "awaiting", "aligning"].includes(state) ? "idle" : "busy";
}
