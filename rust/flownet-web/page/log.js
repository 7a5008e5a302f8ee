// What is said in a job: new entries are asked for while they are looked at, and the oldest go.

import { element, say, show } from "./text.js";

const EVERY_MS = 1000;
const MOST_LINES = 1000;
const LEVELS = ["debug", "info", "warning", "error", "critical"];

export class Log {
  #place; #list; #state; #level; #ask; #names = () => [];
  #job = null; #last = 0; #turn = 0; #isAsking = false;

  /** `ask` gets a path and answers with JSON or null. */
  constructor(place, ask) {
    this.#place = place;
    this.#ask = ask;
    this.#level = element("select", { id: "log-level" }, element("option", { value: "" }, "everything"), ...LEVELS.slice(1).map((level) => element("option", { value: level }, `${level} and worse`)));
    this.#state = element("p", { class: "facts", role: "status" });
    this.#list = element("ol", { class: "log", tabindex: "0", "aria-label": "What was said, the newest last" });
    place.append(element("label", { for: "log-level" }, "Show "), this.#level, this.#state, this.#list);
    this.#level.addEventListener("change", () => this.#begin());
    setInterval(() => this.refresh(), EVERY_MS);
  }

  /** Turn to a job; `names` gives name and parallelism of its tasks. */
  follow(job, names) {
    this.#job = job;
    this.#names = names;
    this.#begin();
  }

  #begin() {
    this.#last = 0;
    this.#turn += 1;
    this.#isAsking = false;
    this.#list.replaceChildren();
    say(this.#state, "");
    this.refresh();
  }

  /** Asks for what is new, once it is known who may have said it. */
  async refresh() {
    if (this.#job === null || this.#isAsking || document.hidden || !this.#names().length) return;
    const turn = this.#turn;
    this.#isAsking = true;
    const level = this.#level.value ? `&level=${this.#level.value}` : "";
    const newest = this.#last === 0 ? "&newest=true" : "";
    const answer = await this.#ask(`/jobs/${encodeURIComponent(this.#job)}/log?after=${this.#last}&most=${MOST_LINES}${level}${newest}`);
    // Somebody wants to see something else meanwhile, which is asked for by itself.
    if (turn !== this.#turn) return;
    this.#isAsking = false;
    if (!answer?.entries) return;
    if (this.#last === 0) this.#list.replaceChildren();
    this.#last = answer.last;
    this.#add(answer.entries);
    show(this.#list, this.#list.childElementCount > 0);
    say(this.#state, this.#list.childElementCount ? "" : "Nothing was said yet.");
  }

  #add(entries) {
    const list = this.#list;
    // Who looks at what was said before is left there.
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 8;
    list.append(...entries.map((entry) => this.#line(entry)));
    while (list.childElementCount > MOST_LINES) list.firstChild.remove();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  #line(entry) {
    const at = new Date(entry.at_ms);
    const kind = entry.level ?? entry.kind;
    return element("li", { class: `entry is-${kind}` },
      element("time", { datetime: at.toISOString() }, at.toLocaleTimeString([], { hour12: false })), " ",
      element("span", { class: "kind" }, kind), " ",
      element("span", { class: "speaker" }, this.#speaker(entry)), " ",
      element("span", { class: "text" }, entry.logger ? `${entry.logger}: ${entry.text}` : entry.text));
  }

  #speaker(entry) {
    const task = this.#names()[entry.task];
    if (!task) return entry.worker ? `worker ${entry.worker}` : "this process";
    return task.parallelism > 1 ? `${task.name} ${entry.subtask + 1}/${task.parallelism}` : task.name;
  }
}
