// Tables whose cells change in place. Of a long one only the rows in view are there.
//
// Where it is scrolled to is noted when that changes: asked for between changes of cells, the browser would have to lay out the
// page anew for each table.

import { element, say } from "./text.js";

const ROW_PIXELS = 30;
const SHOWN_AT_ONCE = 200;
const BEYOND_VIEW = 8;

/**
 * A table with a row for each thing. `columns` are {title, text(thing), number?, cell?(td, thing)}. With `keyOf`, which tells
 * things apart, new ones in front of the others get rows in front: who points at a row, or has the focus in it, keeps its thing.
 */
export class Table {
  constructor(caption, columns, keyOf = null) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.things = [];
    this.head = element("tr", {}, ...columns.map(({ title, number }) => element("th", { scope: "col", class: number && "number" }, title)));
    this.above = element("tr", { "aria-hidden": true, class: "space" }, element("td", { colspan: columns.length }));
    this.below = element("tr", { "aria-hidden": true, class: "space" }, element("td", { colspan: columns.length }));
    this.body = element("tbody", {}, this.above, this.below);
    this.rows = [];
    this.table = element("table", {}, element("caption", {}, caption), element("thead", {}, this.head), this.body);
    this.place = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption, onscroll: () => this.look() }, this.table);
    this.view = { top: 0, height: 0 };
    new ResizeObserver(() => this.look()).observe(this.place);
  }

  update(things) {
    if (this.keyOf) this.makeRoom(things);
    this.things = things;
    this.table.setAttribute("aria-rowcount", things.length);
    this.place.classList.toggle("long", things.length > SHOWN_AT_ONCE);
    this.draw();
  }

  makeRoom(things) {
    const first = this.things.length ? this.keyOf(this.things[0]) : null;
    const newOnes = things.findIndex((thing) => this.keyOf(thing) === first);
    const rows = Array.from({ length: Math.max(newOnes, 0) }, () => this.row());
    this.above.after(...rows);
    this.rows.unshift(...rows);
  }

  row() {
    return element("tr", {}, ...this.columns.map(({ number }) => element("td", { class: number && "number" })));
  }

  look() {
    this.view = { top: this.place.scrollTop, height: this.place.clientHeight };
    if (this.things.length > SHOWN_AT_ONCE) this.draw();
  }

  draw() {
    const isLong = this.things.length > SHOWN_AT_ONCE;
    const inView = Math.ceil((this.view.height || 600) / ROW_PIXELS);
    const first = isLong ? Math.max(0, Math.floor(this.view.top / ROW_PIXELS) - BEYOND_VIEW) : 0;
    const last = isLong ? Math.min(this.things.length, first + inView + 2 * BEYOND_VIEW) : this.things.length;
    while (this.rows.length < last - first) {
      const row = this.row();
      this.rows.push(row);
      this.below.before(row);
    }
    while (this.rows.length > last - first) this.rows.pop().remove();
    this.rows.forEach((row, at) => this.fill(row, this.things[first + at]));
    space(this.above, first * ROW_PIXELS);
    space(this.below, (this.things.length - last) * ROW_PIXELS);
  }

  fill(row, thing) {
    this.columns.forEach(({ text, cell }, at) => {
      const td = row.cells[at];
      if (cell) cell(td, thing);
      else say(td, text(thing));
    });
  }
}

function space(row, pixels) {
  row.hidden = pixels === 0;
  row.cells[0].style.height = `${pixels}px`;
}
