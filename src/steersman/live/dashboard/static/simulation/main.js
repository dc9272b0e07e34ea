// The page: one clock for all runs, a heat map for each, and the details that a person asks for.

import { ask, byId, countOf, element, lasts, showProblem, showWarnings } from "../shared/elements.js";
import { HeatMap } from "../shared/heatmap.js";
import { showLegend } from "../shared/legend.js";
import { startPage } from "../shared/page.js";
import { drawChart, lineOf } from "./chart.js";
import { decisionCard, nodeCard } from "./details.js";
import { ClusterState, EVICTED, FINISHED, arrivalCounts, differences, eventsUntil, unplacedCounts } from "./replay.js";

/** @typedef {import("./replay.js").Replay} Replay */
/** @typedef {import("./details.js").Explanation} Explanation */
/** @typedef {{state: ClusterState, map: HeatMap, sample: HTMLElement, status: HTMLElement}} View */
/** GPUs and cores of pods that run, and pods that fit nowhere. @typedef {{gpus: number, cores: number, refused: number, waiting: number}} Numbers */

const FRAME_SECONDS = 1 / 60;
/** Protocol of a recording of a scheduler. */
const RECORDED = "recorded";

class Page {
  /** @param {Replay} replay */
  constructor(replay) {
    this.replay = replay;
    this.lead = replay.runs[0];
    this.end = Math.max(...replay.runs.map((run) => run.time.at(-1) ?? -1));
    /** Number of the first run's events that were applied. */
    this.at = 0;
    this.playing = false;
    this.from = 0;
    this.startedAt = 0;
    this.frames = 0;
    this.difference = -1;
    this.differences = replay.runs.length > 1 ? differences(replay.runs[0], replay.runs[1]) : [];
    this.arrived = replay.runs.map(arrivalCounts);
    this.unplaced = replay.runs.map(unplacedCounts);
    this.hasGpus = replay.nodes.gpus.some((count, n) => count > 0 || replay.nodes.counted[n] > 0);
    /** Node whose cards are shown, -1: none. */
    this.shownNode = -1;
    /** @type {View[]} */
    this.views = replay.runs.map((run) => this.makeView(run));
    this.asked = 0;
  }

  /** @param {import("./replay.js").Run} run @returns {View} */
  makeView(run) {
    const state = new ClusterState(this.replay, run);
    const status = element("p");
    const canvas = /** @type {HTMLCanvasElement} */ (element("canvas", {
      role: "img", "aria-label": `Nodes and GPUs under ${run.policy}; arrow keys choose a node`,
    }));
    const sample = element("i");
    byId("runs").append(element("section", { class: "run", "aria-label": run.policy }, element("h2", {}, sample, run.policy), status, canvas));
    const map = new HeatMap(canvas, state, (node) => this.chooseNode(node));
    return { state, map, sample, status };
  }

  start() {
    const { replay } = this;
    const isRecorded = replay.protocol === RECORDED;
    const arrivals = replay.protocol === "timed" || isRecorded ? "event" : "arrival";
    byId("subject").textContent = `${replay.workload}: ${countOf(replay.nodes.name.length, "node")}, ${countOf(this.lead.time.length, arrivals)}`
      + `${isRecorded ? "; the nodes' sizes are assumed: the file does not have them" : `, protocol ${replay.protocol}, seed ${replay.seed}`}`;
    showWarnings(replay.warnings);
    byId("time").max = this.lead.time.length;
    const groups = Object.keys(replay.nodes.groups);
    byId("group").append(...["model", ...groups].map((name) => element("option", { value: name }, name)));
    byId("nodes").append(...replay.nodes.name.map((name) => element("option", { value: name })));
    byId("differences").hidden = replay.runs.length < 2;
    byId("play").addEventListener("click", () => this.toggle());
    byId("back").addEventListener("click", () => this.step(-1));
    byId("forward").addEventListener("click", () => this.step(1));
    byId("time").addEventListener("input", () => { this.pause(); this.show(Number(byId("time").value)); });
    byId("duration").addEventListener("change", () => this.startClock());
    byId("mode").addEventListener("change", () => this.redraw());
    byId("group").addEventListener("change", () => this.layOut());
    byId("search").addEventListener("change", () => this.chooseNode(replay.nodes.name.indexOf(byId("search").value)));
    byId("previous").addEventListener("click", () => this.goToDifference(this.differenceBefore()));
    byId("next").addEventListener("click", () => this.goToDifference(this.differenceAfter()));
    document.addEventListener("theme", () => this.redraw());
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("resize", () => this.layOut());
    document.querySelector("main")?.removeAttribute("hidden");
    this.layOut();
    this.show(this.lead.time.length);
  }

  layOut() {
    this.width = byId("maps").clientWidth;
    for (const { map } of this.views) {
      map.group = byId("group").value;
      map.layOut();
    }
    this.redraw();
  }

  redraw() {
    const all = this.lead.time.length;
    drawChart(byId("chart"), this.replay.runs, (run, share) => this.eventsOf(run, Math.round(share * all)));
    this.views.forEach(({ state, map, sample }, i) => {
      sample.style.borderTop = lineOf(state.run, i > 0);
      map.mode = byId("mode").value;
      map.draw(null);
    });
    showLegend(byId("legend"), byId("mode").value, this.views[0].map.models);
  }

  /**
   * Show the clusters after so many events of the first run, and after the same arrivals of the other; after its last, after
   * all of every run. @param {number} count
   */
  show(count) {
    const all = this.lead.time.length;
    this.at = Math.max(0, Math.min(all, count));
    if (this.differences[this.difference]?.a !== this.at) this.difference = -1;
    let changes = false;
    this.views.forEach(({ state, map, status }, run) => {
      // At a difference both are as they were before the decision, whose reasons are shown.
      const events = run === 1 && this.difference >= 0 ? this.differences[this.difference].b : this.eventsOf(run, this.at);
      const changed = state.seek(events);
      map.draw(changed);
      status.textContent = describe(state, this.now(run));
      changes ||= changed === null || changed.has(this.shownNode);
    });
    if (changes && this.shownNode >= 0) this.showNode();
    byId("time").value = this.at;
    byId("time").setAttribute("aria-valuetext", `event ${this.at}`);
    const time = this.at === all ? this.end : this.lead.time[this.at - 1] ?? 0;
    const moment = this.replay.protocol === "timed" ? `, ${lasts(time)}` : "";
    byId("now").textContent = `event ${this.at} of ${this.lead.time.length}${moment}`;
    this.showDifference();
    this.showGap();
  }

  /** What a run has at the present moment. @param {number} run @returns {Numbers} */
  now(run) {
    const { state } = this.views[run];
    const { refused, waiting } = this.unplaced[run];
    return {
      gpus: state.gpusAllocated(), cores: state.coresRequested(),
      refused: refused[state.applied], waiting: waiting[state.applied],
    };
  }

  /** How the second run differs from the first at the present moment, in numbers. */
  showGap() {
    if (this.views.length < 2) return;
    const [one, other] = [this.now(0), this.now(1)];
    const [first, second] = this.replay.runs.map((run) => run.policy);
    const allocated = this.hasGpus ? gap(other.gpus - one.gpus, "GPU", "allocated") : gap(other.cores - one.cores, "core", "requested");
    const pods = [fewer(other.refused - one.refused, "refused")];
    if (one.waiting || other.waiting) pods.push(fewer(other.waiting - one.waiting, "waiting"));
    byId("gap").replaceChildren(`${second} against ${first} at this moment: `, element("strong", {}, [allocated, ...pods].join(", ")));
  }

  /** Events of a run up to the same moment as so many of the first run. @param {number} run @param {number} count @returns {number} */
  eventsOf(run, count) {
    if (count === 0) return 0;
    if (count >= this.lead.time.length) return this.replay.runs[run].time.length;
    return run === 0 ? count : eventsUntil(this.replay.runs[run], this.arrived[run], this.lead.time[count - 1], this.arrived[0][count - 1]);
  }

  toggle() {
    if (this.playing) { this.pause(); return; }
    this.playing = true;
    if (this.at >= this.lead.time.length) this.show(0);
    this.startClock();
    byId("play").textContent = "Pause";
    byId("play").setAttribute("aria-pressed", "true");
    this.frame();
  }

  /** Play from the present event on, at the chosen pace. */
  startClock() {
    this.from = this.at;
    this.startedAt = performance.now();
    this.frames = 0;
  }

  pause() {
    this.playing = false;
    byId("play").textContent = "Play";
    byId("play").setAttribute("aria-pressed", "false");
  }

  frame() {
    if (!this.playing) return;
    const passed = (performance.now() - this.startedAt) / 1000;
    const all = this.lead.time.length;
    const count = this.from + Math.round((passed / Number(byId("duration").value)) * all);
    this.show(count);
    this.frames += 1;
    document.body.dataset.framesPerSecond = (this.frames / Math.max(passed, FRAME_SECONDS)).toFixed(1);
    if (count >= all) { this.pause(); return; }
    requestAnimationFrame(() => this.frame());
  }

  /** @param {number} events */
  step(events) {
    this.pause();
    this.show(this.at + events);
  }

  /** Show cards; the maps may have another width then. @param {HTMLElement[]} cards */
  showDetails(cards) {
    byId("details").replaceChildren(...cards);
    if (byId("maps").clientWidth !== this.width) this.layOut();
  }

  /** @param {number} node */
  chooseNode(node) {
    if (node < 0) return;
    for (const { map } of this.views) map.choose(node, []);
    this.shownNode = node;
    this.showNode();
  }

  showNode() {
    this.showDetails(this.views.map(({ state }, run) => nodeCard(state, this.shownNode, (event) => this.explain([{ run, event }]))));
  }

  /** Show why decisions were made. @param {{run: number, event: number}[]} decisions */
  async explain(decisions) {
    this.asked += 1;
    this.shownNode = -1;
    const asked = this.asked;
    const cards = (/** @type {(Explanation | string)[]} */ texts) => decisions.map(({ run, event }, i) => decisionCard(this.views[run].state, event, texts[i]));
    const texts = decisions.map(() => /** @type {Explanation | string} */ ("Working out why…"));
    this.showDetails(cards(texts));
    await Promise.all(decisions.map(async ({ run, event }, i) => {
      const { sources, versions } = this.replay;
      texts[i] = await explanation(sources[run], versions[run], event);
      if (asked === this.asked) this.showDetails(cards(texts));
    }));
  }

  /** The difference that follows the present event; the first at the end of the run. @returns {number} */
  differenceAfter() {
    if (this.at >= this.lead.time.length) return this.differences.length ? 0 : -1;
    return this.differences.findIndex(({ a }, i) => a >= this.at && i !== this.difference);
  }

  /** @returns {number} the last difference before the present event, -1: none */
  differenceBefore() {
    const after = this.differences.findIndex(({ a }) => a >= this.at);
    return (after < 0 ? this.differences.length : after) - 1;
  }

  /** @param {number} index */
  goToDifference(index) {
    if (index < 0 || index >= this.differences.length) return;
    this.pause();
    this.difference = index;
    const { a, b } = this.differences[index];
    this.show(a);
    const taken = [this.lead.node[a], this.replay.runs[1].node[b]];
    this.views.forEach(({ map }, run) => map.choose(-1, [taken[run], taken[1 - run]].filter((n) => n >= 0)));
    this.explain([{ run: 0, event: a }, { run: 1, event: b }]);
  }

  showDifference() {
    const all = this.differences.length;
    byId("previous").disabled = this.differenceBefore() < 0;
    byId("next").disabled = this.differenceAfter() < 0;
    const first = all ? `; the first is event ${this.differences[0].a}` : "";
    byId("difference").textContent = this.difference < 0 ? `${all} decision${all === 1 ? " differs" : "s differ"}${first}`
      : `difference ${this.difference + 1} of ${all}`;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT"].includes(target.tagName)) return;
    if (event.key === " " && target.tagName === "BUTTON") return;
    const action = {
      " ": () => this.toggle(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      Home: () => this.step(-Infinity), End: () => this.step(Infinity),
      n: () => this.goToDifference(this.differenceAfter()), p: () => this.goToDifference(this.differenceBefore()),
    }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }
}

/** @param {number} more @param {string} noun in singular @param {string} verb @returns {string} a difference in words */
function gap(more, noun, verb) {
  const size = Number(Math.abs(more).toFixed(1));
  if (size === 0) return `as many ${noun}s ${verb}`;
  return `${more > 0 ? "+" : "−"}${countOf(size, noun)} ${verb}`;
}

/** @param {number} more @param {string} verb @returns {string} */
function fewer(more, verb) {
  if (more === 0) return `as many pods ${verb}`;
  const size = Math.abs(more);
  return `${size.toLocaleString("en")} ${more > 0 ? "more" : "fewer"} ${size === 1 ? "pod" : "pods"} ${verb}`;
}

/** @param {ClusterState} state @param {Numbers} now @returns {string} */
function describe(state, now) {
  const { run, applied } = state;
  if (applied === 0) return "nothing has arrived";
  const e = applied - 1;
  const pod = state.replay.pods.name[run.pod[e]];
  const there = run.node[e] >= 0 ? ` on ${state.replay.nodes.name[run.node[e]]}` : "";
  const share = (/** @type {string} */ what, /** @type {number | null} */ value) => (value === null ? "" : `${what} ${value.toFixed(1)} %, `);
  const gone = { [FINISHED]: "ended", [EVICTED]: "was evicted" }[run.outcome[e]];
  const last = gone ? `${pod} ${gone}` : run.node[e] >= 0 ? `${pod}${there}` : `${pod} fits nowhere`;
  const unplaced = [["refused", now.refused], ["waiting", now.waiting]].map(([verb, pods]) => (pods ? `${countOf(Number(pods), "pod")} ${verb}, ` : ""));
  return `${share("GPU", run.gpu[e])}${share("CPU", run.cpu[e])}${share("fragmented", run.fragmentation[e])}${unplaced.join("")}last: ${last}`;
}

/**
 * Let a person choose among several runs, and another on the same arrivals beside it.
 * @param {{name: string, policy: string, workload: string, protocol: string, seed: number, arrivals: string, problem: string}[]} runs
 */
function showChoice(runs) {
  const readable = runs.map((_, i) => i).filter((i) => !runs[i].problem);
  const query = new URLSearchParams(location.search);
  const first = Number(query.get("first") ?? readable[0] ?? 0);
  const alike = readable.filter((i) => i !== first && runs[i].arrivals === runs[first]?.arrivals);
  const second = query.has("first") ? query.get("second") ?? "" : String(alike[0] ?? "");
  const label = (/** @type {number} */ i) => (runs[i].problem ? `${runs[i].name}: cannot be read`
    : runs[i].protocol === RECORDED ? `${runs[i].name}, ${runs[i].policy}`
      : `${runs[i].policy} on ${runs[i].workload}, seed ${runs[i].seed} (${runs[i].name})`);
  const option = (/** @type {number} */ i) => element("option", { value: String(i) }, label(i));
  byId("first").replaceChildren(...runs.map((_, i) => option(i)));
  byId("second").replaceChildren(element("option", { value: "" }, "none"), ...alike.map(option));
  byId("first").value = String(first);
  byId("second").value = second;
  byId("choice").hidden = runs.length < 2 || (runs.length === 2 && readable.length === 2 && alike.length === 1);
  byId("first").addEventListener("change", () => { location.search = `?first=${byId("first").value}`; });
  byId("second").addEventListener("change", () => {
    location.search = `?first=${byId("first").value}${byId("second").value ? `&second=${byId("second").value}` : ""}`;
  });
}

/**
 * @param {number} run position among all runs @param {string} version of the run that is shown @param {number} event
 * @returns {Promise<Explanation | string>}
 */
async function explanation(run, version, event) {
  const query = new URLSearchParams({ run: String(run), version, event: String(event) });
  return ask(`/api/simulation/explanation?${query}`).catch((problem) => problem.message);
}

startPage("simulation");
ask(`/api/simulation/replay${location.search}`).then((replay) => new Page(replay).start()).catch(showProblem);
ask("/api/simulation/runs").then(showChoice).catch(showProblem);
