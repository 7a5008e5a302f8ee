// Checkpoints that count. One opens into what it is made of, task by task, and stays open however many follow it.

import { Table } from "./table.js";
import { bytes, count, duration, element, say, show } from "./text.js";

const number = (title, text) => ({ title, text, number: true });

export class Checkpoints {
  constructor(place) {
    this.open = null;
    const columns = [
      { title: "number", number: true, cell: (td, one) => this.numberCell(td, one) },
      number("at", (one) => duration(one.at_seconds)),
      number("took", (one) => duration(one.seconds)),
      number("state", (one) => bytes(one.bytes)),
      number("written", (one) => bytes(one.written_bytes)),
      number("waited for barriers", (one) => duration(one.aligned_seconds)),
      number("stood still", (one) => duration(one.stood_still_seconds)),
    ];
    const caption = "Checkpoints that count, the newest first; the last ones open into their tasks";
    this.all = new Table(caption, columns, (one) => one.number);
    this.parts = new Table("What it is made of", [
      { title: "task", text: (one) => this.job.tasks[one.task]?.name ?? "" },
      number("subtasks", (one) => count(one.subtasks)),
      number("written after", (one) => duration(one.seconds)),
      number("state", (one) => bytes(one.bytes)),
      number("files written", (one) => bytes(one.written_bytes)),
      number("waited for barriers", (one) => duration(one.aligned_seconds)),
      number("stood still", (one) => duration(one.stood_still_seconds)),
    ]);
    this.title = element("h3", { id: "checkpoint-title" });
    place.append(this.all.place, this.title, this.parts.place);
  }

  update(job) {
    if (this.job?.id !== job.id) this.open = null;
    this.job = job;
    this.all.update([...job.checkpoints].reverse());
    show(this.title, this.open !== null);
    show(this.parts.place, this.open !== null);
    if (!this.open) return;
    say(this.title, `Checkpoint ${count(this.open.number)}`);
    this.parts.update(this.open.parts);
  }

  numberCell(td, one) {
    const isOpen = this.open?.number === one.number;
    const opens = isOpen || one.parts.length > 0;
    const inside = td.firstElementChild ?? td.appendChild(element("button", { type: "button", class: "link" }));
    inside.disabled = !opens;
    inside.setAttribute("aria-expanded", isOpen);
    inside.setAttribute("aria-label", `checkpoint ${one.number}`);
    inside.onclick = () => {
      this.open = isOpen ? null : one;
      this.update(this.job);
    };
    say(inside, count(one.number));
  }
}
