// Where time went, as a bar: its parts sum to the whole.

import { DRAWN, SHARES, className, partsText, percent, set, svg } from "./text.js";

/** Rectangles from (x, y) to the right, and what moves them. */
export function barParts(x, y, width, height) {
  const parts = DRAWN.map((share) => svg("rect", { class: className(share), y, height, x, width: 0 }));
  const frame = svg("rect", { class: "frame", x, y, width, height });
  const update = (shares) => {
    let from = x;
    DRAWN.forEach((share, at) => {
      const wide = Math.max(0, Math.min(shares[share], 1)) * width;
      set(parts[at], { x: from.toFixed(2), width: wide.toFixed(2) });
      from += wide;
    });
  };
  return { parts: [...parts, frame], update };
}

/** A cell of a table with such a bar. */
export function barCell(cell, shares) {
  if (!cell.bar) {
    cell.bar = barParts(0, 0, 100, 12);
    cell.picture = svg("svg", { class: "bar", viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img" }, ...cell.bar.parts);
    cell.append(cell.picture);
  }
  cell.bar.update(shares);
  set(cell.picture, { "aria-label": sharesText(shares) });
  cell.title = sharesText(shares);
}

export const sharesText = (shares) => SHARES.map((share) => shareText(shares, share)).join(", ");

function shareText(shares, share) {
  const parts = partsText(shares, share);
  return `${share.replace("_", "-")} ${percent(shares[share])}${parts.length ? ` (${parts.join(", ")})` : ""}`;
}
