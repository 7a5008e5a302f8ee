// Time lines of a job: drawn anew every few seconds, so kept simple.

import { DRAWN, className, duration, element, keyName, percent, rate, say, set, svg } from "./text.js";

const SIZE = { width: 560, height: 180 };
const INNER = { left: 62, right: 12, top: 10, bottom: 24 };
const MOST_POINTS = 400;
const COLOURS = 8;

/** One chart: `lines` are {name, className, values}, stacked or not, over the seconds of a job. */
class Chart {
  constructor(title, format, isStacked = false) {
    Object.assign(this, { format, isStacked });
    this.picture = svg("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": title });
    this.at = element("span", { class: "at" });
    this.legend = element("ul", { class: "keys" });
    this.figure = element("figure", {}, element("figcaption", {}, title, " ", this.at), this.picture, this.legend);
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.leave());
  }

  update(seconds, lines) {
    const stride = Math.ceil(seconds.length / MOST_POINTS) || 1;
    const thin = (values) => values.filter((_, at) => (values.length - 1 - at) % stride === 0);
    this.seconds = thin(seconds);
    this.lines = lines.map((line) => ({ ...line, values: thin(line.values) }));
    this.keys();
    this.draw();
  }

  keys() {
    const names = JSON.stringify(this.lines.map(({ name }) => name));
    if (names === this.names) return;
    this.names = names;
    const keys = this.lines.map(({ name, className: kind }) => element("li", { class: `key ${kind}`, title: name }, name));
    this.legend.replaceChildren(...keys);
  }

  draw() {
    const [first, last] = [this.seconds[0] ?? 0, this.seconds.at(-1) ?? 1];
    const values = this.lines.flatMap((line) => line.values).filter((value) => value !== null);
    const most = this.isStacked ? 1 : nice(Math.max(...values, 0));
    const least = this.isStacked ? 0 : -nice(-Math.min(...values, 0));
    const wide = SIZE.width - INNER.left - INNER.right;
    const high = SIZE.height - INNER.top - INNER.bottom;
    this.x = (second) => INNER.left + ((second - first) / Math.max(last - first, 1)) * wide;
    this.y = (value) => INNER.top + (1 - (value - least) / (most - least || 1)) * high;
    this.rule = svg("line", { class: "rule", y1: INNER.top, y2: INNER.top + high, x1: -9, x2: -9 });
    const marks = [least, (least + most) / 2, most].flatMap((value) => [
      svg("line", { class: "grid", x1: INNER.left, x2: SIZE.width - INNER.right, y1: this.y(value), y2: this.y(value) }),
      text(INNER.left - 6, this.y(value) + 4, "end", this.format(value)),
    ]);
    const times = [first, (first + last) / 2, last].map((second, at) =>
      text(this.x(second), SIZE.height - 6, ["start", "middle", "end"][at], duration(second)),
    );
    this.picture.replaceChildren(...(this.isStacked ? this.areas() : []), ...marks, ...times, ...(this.isStacked ? [] : this.paths()), this.rule);
  }

  paths() {
    return this.lines.map(({ values, className: kind }) => {
      let isOn = false;
      const steps = values.map((value, at) => {
        const step = value === null ? "" : `${isOn ? "L" : "M"}${this.x(this.seconds[at]).toFixed(1)} ${this.y(value).toFixed(1)}`;
        isOn = value !== null;
        return step;
      });
      return svg("path", { class: `line ${kind}`, d: steps.join("") });
    });
  }

  areas() {
    const under = this.seconds.map(() => 0);
    return this.lines.map(({ values, className: kind }) => {
      const lower = under.map((value, at) => `${this.x(this.seconds[at]).toFixed(1)} ${this.y(value).toFixed(1)}`);
      values.forEach((value, at) => (under[at] += value));
      const upper = under.map((value, at) => `${this.x(this.seconds[at]).toFixed(1)} ${this.y(value).toFixed(1)}`);
      return svg("path", { class: `area ${kind}`, d: upper.length ? `M${[...upper, ...lower.reverse()].join("L")}Z` : "" });
    });
  }

  /** Says what was at the place that is pointed at. */
  point(event) {
    if (!this.seconds?.length) return;
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * SIZE.width;
    const far = (at) => Math.abs(this.x(this.seconds[at]) - x);
    let nearest = 0;
    for (let at = 1; at < this.seconds.length; at += 1) if (far(at) < far(nearest)) nearest = at;
    set(this.rule, { x1: this.x(this.seconds[nearest]), x2: this.x(this.seconds[nearest]) });
    const told = this.lines.filter(({ values }) => values[nearest] !== null);
    const values = told.map(({ name, values: of }) => `${name} ${this.format(of[nearest])}`);
    say(this.at, `at ${duration(this.seconds[nearest])}: ${values.join(", ")}`);
  }

  leave() {
    if (!this.rule) return;
    set(this.rule, { x1: -9, x2: -9 });
    say(this.at, "");
  }
}

export class Lines {
  constructor(place) {
    this.rates = new Chart("Records into each task", rate);
    this.shares = new Chart("Time of", percent, true);
    this.lags = new Chart("Event time behind the wall clock", duration);
    this.pressures = new Chart("Back-pressure", percent);
    place.append(this.rates.figure, this.pressures.figure, this.shares.figure, this.lags.figure);
  }

  /** `task` is the one whose time is shown. */
  update(history, tasks, task) {
    const each = (what) =>
      history.tasks.map((lines, at) => ({ name: tasks[at].name, className: `colour-${at % COLOURS}`, values: lines[what] }));
    this.rates.update(history.seconds, each("records_per_second"));
    this.pressures.update(history.seconds, each("back_pressured"));
    const lags = each("watermark_lag_seconds").filter(({ values }) => values.some((value) => value !== null));
    this.lags.figure.hidden = lags.length === 0;
    this.lags.update(history.seconds, lags);
    const of = history.tasks[task];
    this.shares.figure.hidden = !of;
    if (!of) return;
    say(this.shares.figure.querySelector("figcaption").firstChild, `Time of ${tasks[task].name}`);
    this.shares.update(history.seconds, DRAWN.map((share) => ({ name: keyName(share), className: className(share), values: of[share] })));
  }
}

function text(x, y, anchor, words) {
  const made = svg("text", { x, y, "text-anchor": anchor, class: "axis" });
  made.append(words);
  return made;
}

/** The next number of 1, 2 or 5 times a power of ten. */
function nice(number) {
  if (!(number > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= number) ?? number;
}
