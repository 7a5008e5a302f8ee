// The tasks of a job and the exchanges between them, left to right.

import { barParts, sharesText } from "./bar.js";
import { count, percent, pressure, rate, say, set, svg } from "./text.js";

const BOX = { width: 230, height: 96 };
const GAP = { across: 110, down: 26 };
const LETTERS = 29;
/** A picture of this width is not made smaller. */
const READABLE = 860;
const MARGIN = 14;

export class Graph {
  constructor(place, open) {
    this.place = place;
    this.open = open;
    this.shape = "";
  }

  update(job, openTask) {
    const shape = JSON.stringify([job.id, job.tasks.map((task) => [task.name, task.parallelism]), job.exchanges]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(job);
    }
    job.tasks.forEach((task, at) => this.boxes[at].update(task, at === job.bottleneck_task, at === openTask));
    job.exchanges.forEach((edge, at) => {
      const [from, to] = [job.tasks[edge.from], job.tasks[edge.to]];
      const blocks = to.back_pressured > 0.1 || edge.to === job.bottleneck_task || to.busiest + to.interpreter + to.awaiting > 0.5;
      set(this.edges[at], { class: `edge${job.state === "running" && from.back_pressured > 0.1 && blocks ? " blocked" : ""}` });
    });
  }

  build(job) {
    const { places, routes, width, height } = layout(job.tasks.length, job.exchanges);
    this.boxes = job.tasks.map((task, at) => new Box(task, at, places[at], this.open));
    this.edges = job.exchanges.map((edge, at) => edgeOf(edge, routes[at]));
    const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" });
    arrow.append(svg("path", { class: "arrow", d: "M0 0 L8 4 L0 8 z" }));
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Tasks and exchanges" });
    picture.append(svg("defs", {}, arrow), ...this.edges, ...this.boxes.map((box) => box.group));
    this.place.classList.toggle("small", width < READABLE);
    this.place.replaceChildren(picture);
  }
}

class Box {
  constructor(task, at, { x, y }, open) {
    const line = (dy, className) => svg("text", { x: x + 12, y: y + dy, class: className });
    this.frame = svg("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 6 });
    this.rate = line(44, "rate");
    this.word = line(88, "word");
    this.bar = barParts(x + 12, y + 54, BOX.width - 24, 14);
    const name = line(22, "name");
    name.append(task.name.length > LETTERS ? `${task.name.slice(0, LETTERS - 1)}…` : task.name);
    this.title = svg("title");
    this.group = svg("g", { role: "link", tabindex: "0", "data-task": at });
    this.group.append(this.title, this.frame, name, this.rate, ...this.bar.parts, this.word);
    this.group.addEventListener("click", () => open(at));
    this.group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(at);
      }
    });
  }

  update(task, isBottleneck, isOpen) {
    const word = pressure(task.back_pressured);
    set(this.group, { class: `task ${word}${isBottleneck ? " bottleneck" : ""}${isOpen ? " open" : ""}` });
    const ended = task.ended === undefined || task.ended < task.parallelism ? "" : ", ended";
    say(this.rate, `${count(task.parallelism)} ×  ${rate(task.records_per_second)} in${ended}`);
    const pressed = `back-pressure ${word.toUpperCase()}, ${percent(task.back_pressured)}`;
    say(this.word, isBottleneck ? `bottleneck, ${percent(Math.max(task.busiest, task.interpreter, task.awaiting))}` : pressed);
    this.bar.update(task);
    const said = `${task.name}: ${count(task.records_in)} in, ${count(task.records_out)} out; ${sharesText(task)}; ${pressed}`;
    say(this.title, said);
    set(this.group, { "aria-label": isBottleneck ? `${said}; bottleneck` : said });
  }
}

function edgeOf(edge, route) {
  const path = svg("path", { d: curve(route), "marker-end": "url(#arrow)" });
  const [from, to] = route;
  const label = svg("text", { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - 7, class: "exchange" });
  label.append(edge.partitioner);
  const channels = `${count(edge.channels)} ${edge.channels === 1 ? "channel" : "channels"}, ${edge.flow_control}`;
  const title = svg("title");
  title.append(`${edge.partitioner}, ${channels}`);
  return svg("g", { class: "edge" }, title, path, label);
}

function curve(points) {
  const parts = [`M${points[0].x} ${points[0].y}`];
  for (let at = 1; at < points.length; at += 1) {
    const [from, to] = [points[at - 1], points[at]];
    const middle = (from.x + to.x) / 2;
    parts.push(`C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`);
  }
  return parts.join(" ");
}

/**
 * Where boxes are and edges go. A task is one layer behind the last of those it reads; an edge that skips layers has a place
 * of its own in each, so that it runs beside the boxes there; within a layer, who reads from above is above.
 */
function layout(tasks, exchanges) {
  const layerOf = Array(tasks).fill(0);
  // Tasks come upstream first.
  for (const { from, to } of [...exchanges].sort((a, b) => a.to - b.to || a.from - b.from)) {
    layerOf[to] = Math.max(layerOf[to], layerOf[from] + 1);
  }
  const layers = Array.from({ length: Math.max(0, ...layerOf) + 1 }, () => []);
  const nodes = layerOf.map((layer) => place(layers, layer, BOX.height));
  const chains = exchanges.map(({ from, to }) => {
    const chain = [nodes[from]];
    for (let layer = layerOf[from] + 1; layer < layerOf[to]; layer += 1) chain.push(place(layers, layer, GAP.down));
    chain.push(nodes[to]);
    for (let at = 1; at < chain.length; at += 1) chain[at].before.push(chain[at - 1]);
    return chain;
  });
  for (const layer of layers) {
    for (const node of layer) node.rank = node.before.length ? mean(node.before.map((one) => one.order)) : node.order;
    layer.sort((a, b) => a.rank - b.rank);
    layer.forEach((node, order) => Object.assign(node, { order }));
  }
  const heights = layers.map((layer) => layer.reduce((sum, node) => sum + node.height + GAP.down, -GAP.down));
  const tallest = Math.max(BOX.height, ...heights);
  layers.forEach((layer, column) => {
    let y = MARGIN + (tallest - heights[column]) / 2;
    for (const node of layer) {
      Object.assign(node, { x: MARGIN + column * (BOX.width + GAP.across), y });
      y += node.height + GAP.down;
    }
  });
  const middle = (node) => node.y + node.height / 2;
  const routes = chains.map((chain) =>
    chain.flatMap((node, at) => {
      const [left, right] = [{ x: node.x, y: middle(node) }, { x: node.x + BOX.width, y: middle(node) }];
      return at === 0 ? [right] : at === chain.length - 1 ? [left] : [left, right];
    }),
  );
  const width = layers.length * (BOX.width + GAP.across) - GAP.across + 2 * MARGIN;
  return { places: nodes, routes, width, height: tallest + 2 * MARGIN };
}

function place(layers, layer, height) {
  const node = { layer, height, before: [], order: layers[layer].length };
  layers[layer].push(node);
  return node;
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
