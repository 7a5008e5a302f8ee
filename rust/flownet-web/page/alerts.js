// Alerts: late records, restarts, failed checkpoints and the checkpoint that is under way. They stand on the first screen.

import { count, duration, element, show } from "./text.js";

/* A checkpoint that takes less is not worth a line that comes and goes. */
const SLOW_CHECKPOINT_SECONDS = 1;

export class Alerts {
  constructor(place) {
    this.place = place;
    this.shown = null;
  }

  update(job) {
    const lines = [...late(job), ...restarts(job), ...failedCheckpoints(job), ...underWay(job)];
    const shown = lines.join("\n");
    if (shown === this.shown) return;
    this.shown = shown;
    show(this.place, lines.length > 0);
    this.place.replaceChildren(...lines.map((line) => element("li", {}, line)));
  }
}

function late(job) {
  const tasks = job.tasks.filter((task) => task.late_records > 0);
  return tasks.map((task) => `Late records: ${task.name} dropped ${count(task.late_records)}.`);
}

function restarts(job) {
  if (!job.restarted) return [];
  const last = job.restarts.at(-1);
  const times = job.restarted === 1 ? "once" : `${count(job.restarted)} times`;
  return [`Restarts: ${times}${last ? `, the last at ${duration(last.at_seconds)}: ${last.cause}` : ""}`];
}

function failedCheckpoints(job) {
  if (!job.checkpoints_failed) return [];
  return [`Failed checkpoints: ${count(job.checkpoints_failed)}, the last: ${job.last_failed_checkpoint}`];
}

function underWay({ checkpoint_under_way: checkpoint }) {
  if (!checkpoint || checkpoint.seconds < SLOW_CHECKPOINT_SECONDS) return [];
  const waits = checkpoint.unanswered.length ? `waits for ${checkpoint.unanswered.map(unanswered).join(", ")}` : "all tasks have answered";
  return [`Checkpoint ${count(checkpoint.number)} is under way for ${duration(checkpoint.seconds)}: ${waits}`];
}

function unanswered({ name, count: some, subtasks }) {
  const more = some > subtasks.length ? ", …" : "";
  return `${count(some)} ${some === 1 ? "subtask" : "subtasks"} of ${name} (${subtasks.join(", ")}${more})`;
}
