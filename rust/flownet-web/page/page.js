// What is looked at, and what keeps it new.
//
// The address says what is looked at: #/jobs/ID or #/jobs/ID/tasks/POSITION. A job comes by server-sent events; what is not
// part of it is asked for while it is looked at.

import { Alerts } from "./alerts.js";
import { barCell } from "./bar.js";
import { Checkpoints } from "./checkpoints.js";
import { Failures } from "./failures.js";
import { Flame } from "./flame.js";
import { Graph } from "./graph.js";
import { Lines } from "./lines.js";
import { Log } from "./log.js";
import { Table } from "./table.js";
import { SHARES, bytes, count, duration, element, eventTime, figure, partsText, percent, pressure, rate, say, show } from "./text.js";

const JOBS_EVERY_MS = 2000;
const HISTORY_EVERY_MS = 2000;
const SUBTASKS_EVERY_MS = 1000;
const TRY_AGAIN_MS = 2000;

const at = (id) => document.getElementById(id);

/** What is looked at, and what was told of it. */
const view = { job: null, task: null, subtask: null, isLooking: false, told: null, events: null, lostSince: null, actions: false, jobs: [] };

const graph = new Graph(at("graph"), (task) => go(view.job, task));
const lines = new Lines(at("lines"));
const log = new Log(at("log"), ask);
const flame = new Flame(at("flame"));
const alerts = new Alerts(at("alerts"));
const failures = new Failures(at("failures"));

const number = (title, text) => ({ title, text, number: true });
const operators = new Table("Operators, over all subtasks", [
  { title: "operator", text: (one) => one.name },
  number("in", (one) => rowsRate(one.rows_in_per_second, one.records_in)),
  number("out", (one) => rowsRate(one.rows_out_per_second, one.records_out)),
  number("records in", (one) => handed(one.records_in)),
  number("records out", (one) => handed(one.records_out)),
  number("rows in", (one) => moreRows(one.rows_in, one.records_in)),
  number("rows out", (one) => moreRows(one.rows_out, one.records_out)),
]);
const subtasks = new Table("Subtasks, which open into their channels", [
  { title: "subtask", number: true, cell: subtaskCell },
  number("worker", (one) => count(one.worker)),
  { title: "time", cell: barCell },
  { title: "back-pressure", text: (one) => `${pressure(one.back_pressured).toUpperCase()} ${percent(one.back_pressured)}` },
  number("in", (one) => rate(one.records_in_per_second)),
  number("out", (one) => rate(one.records_out_per_second)),
  number("records in", (one) => count(one.records_in)),
  number("records out", (one) => count(one.records_out)),
  number("received, unread", (one) => queue(one.receive_buffers, one.receive_bytes)),
  number("to be sent", (one) => queue(one.send_buffers, one.send_bytes)),
  number("pool in", (one) => poolText(one.in_pool_used, one.in_pool_size)),
  number("pool out", (one) => poolText(one.pool_used - one.in_pool_used, one.pool_size - one.in_pool_size)),
  { title: "watermark", text: (one) => eventTime(one.watermark_ms) },
  number("behind", (one) => duration(one.watermark_lag_seconds)),
  number("late", (one) => nothing(one.late_records)),
  number("dropped", (one) => nothing(one.dropped_records)),
  { title: "", text: (one) => (one.ended ? "ended" : "") },
]);
const usersMetrics = new Table("Metrics of its functions", [
  { title: "operator", text: (one) => one.operator },
  { title: "metric", text: (one) => one.name },
  number("subtask", (one) => count(one.subtask)),
  { title: "kind", text: (one) => one.kind },
  number("value", (one) => userValue(one)),
]);
const otherEnd = [
  { title: "task", text: (one) => view.told?.tasks[one.task]?.name ?? "" },
  number("subtask", (one) => count(one.subtask)),
  number("worker", (one) => count(one.worker)),
];
/** What has gone by a channel and goes by it now; the rates are there from the second look on. */
const gone = (way) => [
  number("records", (one) => count(one[`records_${way}`])),
  number("records/s", (one) => rateSoFar(one[`records_${way}_per_second`])),
  number("bytes", (one) => bytes(one[`bytes_${way}`])),
  number("bytes/s", (one) => byteRate(one[`bytes_${way}_per_second`])),
];
const channelsIn = new Table("Channels in, by who writes", [
  ...otherEnd,
  ...gone("in"),
  number("arrived, not taken", (one) => nothing(one.queued)),
  number("credit", (one) => (one.credit === null ? "needs none" : one.credit === 0 ? "none" : buffersText(one.credit))),
]);
const channelsOut = new Table("Channels out, by who reads", [
  ...otherEnd,
  ...gone("out"),
  number("to be sent", (one) => queue(one.buffers, one.bytes)),
]);
const workers = new Table("Processes", [
  number("worker", (one) => (one.worker === 0 ? "0, which submitted the job" : count(one.worker))),
  number("memory in RAM", (one) => (one.resident_bytes === null ? "" : bytes(one.resident_bytes))),
  number("processor time", (one) => duration(one.cpu_seconds)),
  number("garbage collections", (one) => (one.gc_collections ? `${count(one.gc_collections)} in ${duration(one.gc_seconds)}` : "none")),
  number("threads", (one) => (one.threads === null ? "" : count(one.threads))),
  number("open files", (one) => (one.open_files === null ? "" : count(one.open_files))),
  number("network memory in use", (one) => `${count(one.segments_used)} of ${count(one.segments)} segments`),
]);
const checkpoints = new Checkpoints(at("checkpoints"));
const restarts = new Table("Restarts, the newest first", [
  number("at", (one) => duration(one.at_seconds)),
  { title: "cause", text: (one) => one.cause },
  { title: "tasks", text: (one) => (one.tasks.length === 0 ? "all" : one.tasks.join(", ")) },
  { title: "went on from", text: (one) => (one.resumed_from === null ? "the beginning" : `checkpoint ${one.resumed_from}`) },
]);
const settings = new Table("Settings", [
  { title: "setting", text: ([name]) => name },
  { title: "value", text: ([, value]) => value },
]);
at("operators").append(operators.place);
at("subtasks").append(subtasks.place);
at("users-metrics").append(usersMetrics.place);
at("channels-in").append(channelsIn.place);
at("channels-out").append(channelsOut.place);
at("workers").append(workers.place);
at("restarts").append(restarts.place);
at("settings").append(settings.place);

const queue = (buffers, size) => (buffers ? `${count(buffers)} (${bytes(size)})` : "");
const buffersText = (number) => `${count(number)} ${number === 1 ? "buffer" : "buffers"}`;
const poolText = (used, size) => (size ? `${count(used)} of ${count(size)}` : "");
const rateSoFar = (perSecond) => (perSecond === null ? "" : rate(perSecond));
const byteRate = (perSecond) => (perSecond === null ? "" : `${bytes(perSecond)}/s`);
/* Of a source nothing goes in, of a sink nothing out. */
const handed = (records) => (records ? count(records) : "");
const rowsRate = (perSecond, records) => (records ? rate(perSecond) : "");
const moreRows = (rows, records) => (records && rows !== records ? count(rows) : "");
const nothing = (number) => (number ? count(number) : "");

function userValue(metric) {
  if (metric.kind === "counter") return count(metric.value);
  if (metric.kind === "meter") return `${count(metric.value)} (${rate(metric.per_second ?? 0)})`;
  if (metric.kind === "gauge") return metric.value === null ? "not set" : figure(metric.value);
  return metric.count ? `${count(metric.count)}, mean ${figure(metric.sum / metric.count)}, up to ${figure(metric.max)}` : "0";
}

/* What is looked at. */

function go(job, task) {
  location.hash = addressOf(job, task, null);
}

function addressOf(job, task, subtask) {
  const parts = [`#/jobs/${job}`];
  if (task !== null) parts.push(`tasks/${task}`);
  if (subtask !== null) parts.push(`subtasks/${subtask}`);
  return parts.join("/");
}

/** The number of a subtask, which opens into its channels and closes again. */
function subtaskCell(td, one) {
  const link = td.firstChild ?? td.appendChild(element("a"));
  const isOpen = view.subtask === one.subtask;
  say(link, count(one.subtask));
  link.setAttribute("aria-expanded", isOpen);
  link.setAttribute("aria-label", `channels of subtask ${one.subtask}`);
  link.href = addressOf(view.job, view.task, isOpen ? null : one.subtask);
}

function look() {
  // Ids are numbers, or several of a job that ended in another process: anything else is no job, and the newest one is shown.
  const found = /^#\/jobs\/([\d-]+)(?:\/tasks\/(\d+)(?:\/subtasks\/(\d+))?)?$/.exec(location.hash);
  const whole = (text) => (text === undefined ? null : Number(text));
  const [job, task, subtask] = found ? [found[1], whole(found[2]), whole(found[3])] : [null, null, null];
  const isOther = job !== view.job;
  Object.assign(view, { job, task, subtask });
  flame.look(job, task, subtask);
  if (isOther) follow();
  else if (view.told) draw();
  refreshSubtasks();
  refreshChannels();
  refreshHistory();
  if (task !== null) at("task").scrollIntoView({ block: "nearest" });
}

/** Turn to the job that is looked at. */
function follow() {
  view.events?.close();
  Object.assign(view, { told: null, events: null });
  show(at("details"), false);
  if (view.job === null) return;
  listen(view.job);
  log.follow(view.job, () => view.told?.tasks ?? []);
  refreshPlan();
}

/** Be told of a job, and when nobody tells any more, try again; what was told last stays. */
function listen(job) {
  const events = new EventSource(`/api/v1/jobs/${encodeURIComponent(job)}/events`);
  view.events = events;
  events.addEventListener("job", (event) => {
    found();
    take(JSON.parse(event.data));
  });
  events.addEventListener("end", () => {
    events.close();
    refreshHistory();
    refreshSubtasks();
    refreshChannels();
  });
  events.onerror = async () => {
    events.close();
    // Whether it is the job that is not there or the server, an event cannot tell.
    const answer = await ask(`/jobs/${encodeURIComponent(job)}`);
    if (view.events !== events) return;
    if (answer?.error && !view.told) {
      say(at("name"), "No such job");
      say(at("sentence"), answer.error);
    } else {
      setTimeout(() => view.events === events && listen(job), TRY_AGAIN_MS);
    }
  };
}

function take(job) {
  if (job.id !== view.job) return;
  const isFirst = view.told === null;
  view.told = job;
  draw();
  // The list of jobs is asked for now and then, which may be too late for the last of a process.
  const { id, state, outcome } = job;
  drawJobs(view.jobs.map((one) => (one.id === id ? { ...one, state, outcome } : one)));
  if (isFirst) log.refresh();
}

/* What it looks like. */

function draw() {
  const job = view.told;
  show(at("details"), job.tasks.length > 0);
  document.title = `${job.name}: ${stateText(job)}`;
  say(at("name"), job.name);
  say(at("state"), stateText(job));
  at("state").className = `state ${job.outcome ?? job.state}`;
  const where = job.workers ? `${count(job.workers)} ${job.workers === 1 ? "worker" : "workers"}` : "no workers";
  const began = new Date(job.began_ms).toLocaleString();
  say(at("facts"), `since ${began}, ${duration(job.seconds)}; ${where}; ${count(job.records)} records, ${rate(job.records_per_second)} ${job.restarted ? "since the restart" : "over all"}; at most ${bytes(job.network_memory_bytes)} of network memory a process`);
  const [first, ...traceback] = (job.error ?? "").split("\n");
  say(at("sentence"), sentence(job, first));
  // Read out when it is news, and not whenever a number in it changes.
  say(at("spoken"), sentence(job, first).replace(/ \(.*/, ""));
  at("sentence").className = `sentence${job.outcome === "failed" ? " failed" : job.stalled ? " stalled" : job.bottleneck ? " held" : ""}`;
  show(at("error"), traceback.length > 0);
  say(at("error"), traceback.join("\n"));
  alerts.update(job);
  graph.update(job, view.task);
  drawTask(job);
  drawHistory(job);
  show(at("actions"), view.actions && !["ended", "cancelling", "failing"].includes(job.state));
}

function stateText(job) {
  if (job.outcome) return job.outcome === "finished" ? "ended" : job.outcome;
  return view.lostSince === null ? job.state : `last seen ${job.state}`;
}

function sentence(job, error) {
  if (job.error) return error;
  if (job.state === "restarting") return `Restarting after: ${job.restarts.at(-1)?.cause}`;
  if (job.stalled) return `Nothing moves: ${job.stalled}`;
  if (job.bottleneck) return `Bottleneck: ${job.bottleneck}`;
  return job.state === "ended" ? "No bottleneck. The job ended well." : "No bottleneck.";
}

function drawTask(job) {
  const task = job.tasks[view.task];
  show(at("task"), Boolean(task));
  if (!task) return;
  say(at("task-title"), task.name);
  at("close-task").href = `#/jobs/${job.id}`;
  const facts = [
    `${count(task.records_in)} records in, ${count(task.records_out)} out`,
    task.rows_in > task.records_in || task.rows_out > task.records_out ? `${count(task.rows_in)} rows in, ${count(task.rows_out)} out` : "",
    `${bytes(task.bytes_local)} from this process, ${bytes(task.bytes_tcp)} over TCP`,
    task.fill_limit ? `${duration(task.in_flight_seconds)} in flight to it, in buffers filled up to ${bytes(task.fill_limit)}` : "",
    task.awaiting > 0.005 ? `${percent(task.awaiting)} waiting for calls of its functions` : "",
    task.aligning > 0.005 ? `${percent(task.aligning)} waiting for sources it is aligned with` : "",
    ...SHARES.flatMap((share) => partsText(task, share)),
    task.watermark_ms === null ? "" : `event time ${eventTime(task.watermark_ms)}`,
    task.state_keys === null ? "" : `${count(task.state_keys)} keys`,
    task.state_bytes ? `${bytes(task.state_bytes)} of state in the last checkpoint` : "",
    task.timers === null ? "" : `${count(task.timers)} timers`,
    task.source_lag_bytes === null ? "" : `${bytes(task.source_lag_bytes)} to read`,
    task.source_lag_records === null ? "" : `${count(task.source_lag_records)} records to read`,
    task.latency_p50_seconds === null ? "" : `latency from the sources ${duration(task.latency_p50_seconds)} median, ${duration(task.latency_p99_seconds)} for 99 %, ${duration(task.latency_max_seconds)} at most`,
    task.late_records ? `${count(task.late_records)} late records dropped` : "",
    task.dropped_records ? `${count(task.dropped_records)} records (${bytes(task.dropped_bytes)}) dropped before it` : "",
  ];
  say(at("task-facts"), facts.filter(Boolean).join("; "));
  show(at("operators"), task.operators.length > 0);
  operators.update(task.operators);
}

function drawHistory(job) {
  const made = job.checkpoints_made ? `${count(job.checkpoints_made)} checkpoints count` : "no checkpoints";
  const failed = job.checkpoints_failed ? `; ${count(job.checkpoints_failed)} failed, the last: ${job.last_failed_checkpoint}` : "";
  const resumed = job.resumed_from === null ? "" : `; went on from checkpoint ${job.resumed_from}`;
  const again = job.restarted ? `; restarted ${count(job.restarted)} times` : "";
  say(at("checkpoints-facts"), `${made}${failed}${resumed}${again}`);
  show(at("checkpoints"), job.checkpoints.length > 0);
  show(at("restarts"), job.restarts.length > 0);
  checkpoints.update(job);
  restarts.update([...job.restarts].reverse());
  failures.update(job);
}

function drawJobs(jobs) {
  view.jobs = jobs;
  const entries = jobs.map((job) => {
    const state = job.outcome && job.outcome !== "finished" ? job.outcome : job.state;
    const link = element("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, element("span", { class: `dot ${state}` }), `${job.name} `, element("small", {}, `${job.id}, ${state}`));
    if (job.id === view.job) link.setAttribute("aria-current", "page");
    return { key: `${job.id} ${job.name} ${state} ${job.id === view.job}`, item: element("li", {}, link) };
  });
  const key = entries.map((entry) => entry.key).join("\n");
  if (at("jobs").dataset.key === key) return;
  const focused = document.activeElement?.closest("#jobs a")?.getAttribute("href");
  at("jobs").dataset.key = key;
  at("jobs").replaceChildren(...entries.map((entry) => entry.item));
  if (focused) at("jobs").querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

/* What is asked for. */

/** Answers null where nobody does. */
async function ask(path) {
  try {
    const answer = await fetch(`/api/v1${path}`);
    const read = await answer.json();
    found();
    return read;
  } catch {
    lost();
    return null;
  }
}

function lost() {
  view.lostSince ??= new Date();
  const ended = view.told?.state === "ended" ? "The process has ended." : "What you see is how it was then.";
  say(at("connection"), `Nobody answers since ${view.lostSince.toLocaleTimeString()}. ${ended}`);
  show(at("connection"), true);
  document.body.classList.add("lost");
  if (view.told) draw();
}

function found() {
  if (view.lostSince === null) return;
  view.lostSince = null;
  show(at("connection"), false);
  document.body.classList.remove("lost");
  if (view.told) draw();
}

async function refreshJobs() {
  const answer = await ask("/jobs");
  if (!answer?.jobs) return;
  if (view.job === null && answer.jobs.length) {
    const running = answer.jobs.find((job) => job.state !== "ended") ?? answer.jobs[0];
    history.replaceState(null, "", `#/jobs/${encodeURIComponent(running.id)}`);
    look();
  }
  drawJobs(answer.jobs);
}

async function refreshSubtasks() {
  const { job, task } = view;
  if (job === null) return;
  // Those of the task that is open: a job may have thousands of others.
  const answer = await ask(`/jobs/${encodeURIComponent(job)}/${task === null ? "workers" : `subtasks?task=${task}`}`);
  if (!answer?.workers || view.job !== job) return;
  workers.update(answer.workers);
  if (task === null || view.task !== task) return;
  subtasks.update(answer.tasks);
  const metrics = answer.tasks.flatMap((one) => one.metrics.map((metric) => ({ ...metric, subtask: one.subtask })));
  show(at("users-metrics"), metrics.length > 0);
  usersMetrics.update(metrics);
}

async function refreshChannels() {
  const { job, task, subtask } = view;
  const isShown = subtask !== null;
  show(at("channels-facts"), isShown);
  if (!isShown) {
    for (const table of [channelsIn, channelsOut]) show(table.place, false);
    return;
  }
  view.isLooking = true;
  const answer = await ask(`/jobs/${encodeURIComponent(job)}/channels/${task}/${subtask}`);
  view.isLooking = false;
  if (!answer || view.job !== job || view.task !== task || view.subtask !== subtask) return;
  say(at("channels-facts"), answer.error ?? `Channels of subtask ${count(subtask)}, as its worker sees them now`);
  for (const [table, channels] of [[channelsIn, answer.inputs ?? []], [channelsOut, answer.outputs ?? []]]) {
    show(table.place, channels.length > 0);
    table.update(channels);
  }
}

async function refreshHistory() {
  const { job } = view;
  if (job === null) return;
  const answer = await ask(`/jobs/${encodeURIComponent(job)}/history`);
  if (!answer?.seconds || view.job !== job || !view.told) return;
  lines.update(answer, view.told.tasks, view.task ?? view.told.bottleneck_task ?? 0);
}

async function refreshPlan() {
  const { job } = view;
  const answer = await ask(`/jobs/${encodeURIComponent(job)}/plan`);
  if (!answer?.settings || view.job !== job) return;
  say(at("plan"), answer.explain);
  settings.update(Object.entries(answer.settings));
}

/* What can be done. */

function confirmed(text, asksForFolder, act) {
  const dialog = at("ask");
  say(at("ask-text"), text);
  say(at("ask-answer"), "");
  show(at("ask-folder-label"), asksForFolder);
  at("ask-yes").onclick = async (event) => {
    event.preventDefault();
    say(at("ask-answer"), "…");
    const refused = await act(at("ask-folder").value.trim());
    if (refused) say(at("ask-answer"), refused);
    else dialog.close();
  };
  dialog.showModal();
  at("ask-no").focus();
}

/** Answers why not, or nothing. */
async function post(action, body) {
  try {
    const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const answer = await fetch(`/api/v1/jobs/${encodeURIComponent(view.job)}/${action}`, init);
    return answer.ok ? null : (await answer.json()).error;
  } catch {
    return "nobody answers";
  }
}

at("cancel").onclick = () => confirmed(`Cancel ${view.told.name}? What is in flight is lost, but for what checkpoints keep.`, false, () => post("cancel", {}));
at("stop").onclick = () =>
  confirmed(`Stop ${view.told.name}? Its sources end. With checkpoints it resumes where it stopped; without, open windows fire. With a folder, a savepoint of its end goes there.`, true, (folder) =>
    post("stop", { savepoint: folder || null }),
  );
at("checkpoint").onclick = () => confirmed(`Take a checkpoint of ${view.told.name} now? It goes on.`, false, () => post("checkpoint", {}));
at("savepoint").onclick = () => confirmed(`Take a savepoint of ${view.told.name}? It goes on.`, true, (folder) => post("savepoint", { path: folder }));

function every(period, refresh, isWanted = () => true) {
  setInterval(() => !document.hidden && isWanted() && refresh(), period);
}

const runs = () => view.told && view.told.state !== "ended";
addEventListener("hashchange", look);
document.addEventListener("visibilitychange", () => !document.hidden && refreshJobs());
every(JOBS_EVERY_MS, refreshJobs);
every(HISTORY_EVERY_MS, refreshHistory, runs);
every(SUBTASKS_EVERY_MS, refreshSubtasks, runs);
every(SUBTASKS_EVERY_MS, refreshChannels, () => runs() && view.subtask !== null && !view.isLooking);
ask("").then((about) => {
  view.actions = Boolean(about?.actions);
});
look();
refreshJobs();
