// The page of a live cluster: the map and the counts follow the server's events; charts and cards are asked for.

import { ask, byId, countOf, element, lasts, showProblem, showWarnings, table } from "../shared/elements.js";
import { gpusOf, HeatMap } from "../shared/heatmap.js";
import { showLegend } from "../shared/legend.js";
import { startPage } from "../shared/page.js";
import { link, nodeCard, podCard } from "./cards.js";
import { Details } from "./details.js";
import { Graphs } from "./graphs.js";
import { QueueTable } from "./queue.js";
import { LiveState } from "./state.js";

/** @typedef {import("./cards.js").PodRow} PodRow */
/**
 * @typedef {{age: number | null, nodes: number, notReady: number, pods: number, waiting: number, bound: number, rate: number,
 *   groups: {scheduler: string, reason: string, pods: number, since: number, pod: string}[], gpu: number | null,
 *   cpu: number | null, rules: {rule: string, agreed: number, of: number}[], skipped: number, odd: number}} Summary
 * @typedef {{source: string, title: string, value: number | null, word: string, unit: string, series: string}} MetricRow
 * @typedef {{sources: {source: string, url: string, problem: string}[], rows: MetricRow[]}} Metrics
 */

const POLICIES = ["kube-default", "fgd", "best-fit", "most-even", "steersman"];
const WORKING = "Working out why…";
const SEARCH_MILLISECONDS = 200;
const FOLLOW_MILLISECONDS = 2000;
const LATE_SECONDS = 5;

class LivePage {
  /** @param {LiveState} state */
  constructor(state) {
    this.state = state;
    this.map = new HeatMap(byId("map"), state, (n) => this.chooseNode(n));
    this.policy = POLICIES[0];
    this.width = 0;
    /** @type {Details | null} */
    this.details = null;
    /** Whether the cluster has changed since the details were asked for. */
    this.isOld = false;
    setInterval(() => this.follow(), FOLLOW_MILLISECONDS);
    document.querySelector("main")?.removeAttribute("hidden");
    this.queue = new QueueTable(POLICIES, (pod) => this.showPod(pod));
    this.graphs = new Graphs((name) => this.showNode(name), link);
    byId("mode").addEventListener("change", () => this.redraw());
    byId("group").addEventListener("change", () => this.regroup());
    let timer = 0;
    byId("search").addEventListener("input", () => { clearTimeout(timer); timer = window.setTimeout(() => this.search(), SEARCH_MILLISECONDS); });
    document.addEventListener("theme", () => this.redraw());
    window.addEventListener("resize", () => this.layOut());
    this.showGroups();
    this.layOut();
  }

  /** Show other nodes. @param {LiveState} state */
  replace(state) {
    this.isOld = true;
    const chosen = this.state.nodes.name[this.map.chosen];
    this.state = state;
    this.map.state = state;
    this.map.chosen = chosen === undefined ? -1 : state.nodes.name.indexOf(chosen);
    this.showGroups();
    this.map.show(state);
    this.redraw();
  }

  /** @param {import("./state.js").Use} use */
  apply(use) {
    this.isOld = true;
    this.map.draw(this.state.apply(use));
  }

  showGroups() {
    const chosen = byId("group").value;
    const names = ["model", ...Object.keys(this.state.nodes.groups)];
    byId("group").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    byId("group").value = names.includes(chosen) ? chosen : "model";
  }

  regroup() {
    this.graphs.by = byId("group").value;
    this.graphs.refresh();
    this.layOut();
  }

  layOut() {
    this.width = byId("maps").clientWidth;
    this.map.group = byId("group").value;
    this.map.layOut();
    this.redraw();
  }

  redraw() {
    this.map.mode = byId("mode").value;
    this.map.draw(null);
    showLegend(byId("legend"), this.map.mode, this.map.models);
  }

  /** @param {Summary} now */
  showSummary(now) {
    this.isOld = true;
    const percent = (/** @type {number | null} */ value) => (value === null ? "–" : `${value.toFixed(1)} %`);
    const behind = now.age === null || now.age >= LATE_SECONDS ? [["As of", now.age === null ? "never" : `${lasts(now.age)} ago: the API server does not answer`]] : [];
    const odd = now.odd ? [["Nodes not understood", now.odd.toString()]] : [];
    const notReady = now.notReady ? [["Not ready", now.notReady.toString()]] : [];
    const counts = [...behind, ["Nodes", now.nodes.toString()], ...notReady, ...odd, ["Pods", now.pods.toString()], ["Waiting", now.waiting.toString()],
      ["Bindings per second", now.rate.toFixed(1)], ["Bound since the start", now.bound.toString()], ["GPU requested", percent(now.gpu)],
      ["CPU requested", percent(now.cpu)]];
    byId("counts").replaceChildren(...counts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    const rules = byId("rule");
    if (rules.options.length !== now.rules.length) {
      rules.replaceChildren(...now.rules.map(({ rule }) => element("option", { value: rule }, rule)));
    }
    this.graphs.showAgreement(now);
    const rows = now.groups.map(({ scheduler, reason, pods, since, pod }) => [pods.toString(), scheduler, element("span", { class: "reason" }, reason || "not tried yet"),
      lasts(Date.now() / 1000 - since), link(pod, () => this.showPod(pod))]);
    byId("waiting").replaceChildren(rows.length ? table(["pods", "scheduler", "reason", "longest", "that is"], rows, [0, 3]) : element("p", {}, "No pod waits."));
  }

  /** @param {Metrics} metrics */
  showMetrics(metrics) {
    byId("metrics").hidden = metrics.sources.length === 0;
    byId("sources").replaceChildren(...metrics.sources.map(({ source, url, problem }) => element("p", {}, `${source} at ${url}${problem ? ` ${problem}` : ""}`)));
    const rows = metrics.rows.map((row) => [row.source,
      row.series ? link(row.title, () => { this.graphs.metric = row.series; this.graphs.refresh(); }) : row.title,
      row.word || (row.value === null ? "–" : `${row.value} ${row.unit}`)]);
    byId("rows").replaceChildren(rows.length ? table(["from", "metric (choose one for its chart)", "value"], rows, [2]) : "");
  }

  async search() {
    const text = byId("search").value.trim();
    const found = text ? await ask(`/api/live/search?${new URLSearchParams({ text })}`).catch(() => []) : [];
    byId("found").replaceChildren(...found.map((/** @type {{kind: string, name: string}} */ { kind, name }) =>
      element("li", {}, link(`${kind} ${name}`, () => (kind === "node" ? this.showNode(name) : this.showPod(name))))));
    if (text && !found.length) byId("found").replaceChildren(element("li", {}, "Nothing has that in its name."));
  }

  /** @param {number} n */
  chooseNode(n) {
    if (n >= 0) this.showNode(this.state.nodes.name[n]);
  }

  /** @param {string} name */
  showNode(name) {
    this.map.choose(this.state.nodes.name.indexOf(name), []);
    this.graphs.node = name;
    this.graphs.refresh();
    this.details = new Details(`/api/live/node?${new URLSearchParams({ name })}`, (node) => nodeCard(node, (pod) => this.showPod(pod)));
    return this.showDetails();
  }

  /** @param {string} name */
  async showPod(name) {
    /** @type {import("./cards.js").Explanation | string} */
    let explained = WORKING;
    /** @param {string} policy */
    const explain = async (policy) => {
      const answer = await ask(`/api/live/explanation?${new URLSearchParams({ pod: name, policy })}`).catch((problem) => problem.message);
      if (details !== this.details || policy !== this.policy) return;
      explained = answer;
      await this.showDetails();
    };
    /** @param {string} policy */
    const choosePolicy = (policy) => {
      this.policy = policy;
      explained = WORKING; // the explanation of the previous policy must not appear under this one's name
      details.show(byId("details"));
      explain(policy);
    };
    const details = new Details(`/api/live/pod?${new URLSearchParams({ name })}`,
      (pod) => podCard(pod, explained, this.policy, POLICIES, choosePolicy, (node) => this.showNode(node)));
    this.details = details;
    await this.showDetails();
    if (details !== this.details || details.answer === null) return;
    if (details.answer.node) this.map.choose(this.state.nodes.name.indexOf(details.answer.node), []);
    await explain(this.policy);
  }

  /** Ask for what is chosen, and show it; the map may have another width then. */
  async showDetails() {
    const { details } = this;
    if (details === null) return;
    this.isOld = false;
    await details.ask();
    if (details !== this.details) return;
    details.show(byId("details"));
    if (byId("maps").clientWidth !== this.width) this.layOut();
  }

  /** Let the details follow the cluster. */
  follow() {
    if (!document.hidden && (this.isOld || this.details?.isWaiting)) this.showDetails();
  }
}

/** @type {LivePage | null} */
let page = null;

/** @param {MessageEvent} event */
function showSnapshot(event) {
  const snapshot = JSON.parse(event.data);
  const { name, gpus: devices, unit, counted } = snapshot.nodes;
  const gpus = name.reduce((/** @type {number} */ sum, /** @type {string} */ _, /** @type {number} */ n) => sum + devices[n] * unit[n] + counted[n], 0);
  byId("subject").textContent = `${countOf(name.length, "node")}${gpus ? `, ${gpusOf(gpus, "")}` : ""}`;
  showWarnings(snapshot.warnings);
  const state = new LiveState(snapshot);
  if (page === null) page = new LivePage(state); else page.replace(state);
}

startPage("live");
/** Why the server ends the stream, "" if it has not said. */
let refusal = "";
const stream = new EventSource("/api/live/stream");
stream.addEventListener("snapshot", showSnapshot);
stream.addEventListener("use", (event) => page?.apply(JSON.parse(event.data)));
stream.addEventListener("summary", (event) => page?.showSummary(JSON.parse(event.data)));
stream.addEventListener("metrics", (event) => page?.showMetrics(JSON.parse(event.data)));
stream.addEventListener("open", () => { byId("problem").hidden = true; });
stream.addEventListener("refused", (event) => { refusal = JSON.parse(event.data); });
stream.addEventListener("error", () => {
  showProblem(refusal || "The server does not answer; what is shown may be old.");
  refusal = "";
});
