// Tracebacks of attempts that failed and were followed by others, each behind a line that opens it.

import { duration, element } from "./text.js";

export class Failures {
  constructor(place) {
    this.place = place;
    this.shown = "";
  }

  /** Those that are open stay open: nothing is made anew unless there is another failure. */
  update(job) {
    const failed = job.restarts.filter((restart) => restart.traceback);
    const shown = JSON.stringify([job.id, failed.map((restart) => restart.at_seconds)]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.place.replaceChildren(...failed.reverse().map(detailsOf));
  }
}

function detailsOf({ at_seconds: at, cause, traceback }) {
  return element("details", {}, element("summary", {}, `Traceback of the failure at ${duration(at)}: ${cause}`), element("pre", { class: "error", tabindex: "0" }, traceback));
}
