// The page of training runs: curves that grow while a run learns, its progress and log, and requests to it.

import { Chart } from "../shared/chart.js";
import { kind } from "../shared/colours.js";
import { ask, byId, element, showProblem, showProblems } from "../shared/elements.js";
import { merged } from "../shared/merging.js";
import { startPage } from "../shared/page.js";
import { RunData } from "./data.js";
import { drawHistogram } from "./histogram.js";

/** @typedef {import("./data.js").Head} Head */

const EVERY_MS = 1500;
const LIST_EVERY = 4;
/** Metrics of one chart, by its title; the first that a run has decides. */
const GROUPS = [
  { title: "Reward", names: ["reward", "return", "gain"] },
  { title: "Loss", names: ["loss", "policy_loss", "value_loss"] },
  { title: "Exploration", names: ["epsilon", "entropy", "teacher_share", "sigma", "approx_kl"] },
];
const BUTTONS = ["pause", "continue", "stop", "checkpoint"];

class Page {
  /** @param {Head[]} heads */
  constructor(heads) {
    this.heads = heads;
    /** @type {Map<string, RunData>} */
    this.runs = new Map();
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    const asked = new URLSearchParams(location.search).get("run");
    this.chosen = (heads.find((each) => each.id === asked) ?? heads.find((each) => each.state === "learning" || each.state === "paused")
      ?? heads[0]).id;
    /** @type {Set<string>} */
    this.others = new Set();
    this.round = 0;
  }

  start() {
    byId("run").addEventListener("change", () => this.choose(byId("run").value));
    for (const name of BUTTONS) byId(name).addEventListener("click", () => this.request(name));
    document.addEventListener("theme", () => this.showHistograms());
    document.querySelector("main")?.removeAttribute("hidden");
    this.showList();
    this.follow();
  }

  /** @param {string} id */
  choose(id) {
    this.chosen = id;
    this.others.delete(id);
    history.replaceState(null, "", `?run=${id}`);
    byId("answer").textContent = "";
    this.showList();
    this.update().catch(showProblem);
  }

  /** Ask for what is new, forever; the server sends new rows alone. */
  async follow() {
    try {
      if (this.round % LIST_EVERY === LIST_EVERY - 1) {
        this.heads = await ask("/api/training/runs");
        this.showList();
      }
      this.round += 1;
      await this.update();
    } catch (problem) {
      showProblem(problem);
    }
    setTimeout(() => this.follow(), document.hidden ? 4 * EVERY_MS : EVERY_MS);
  }

  async update() {
    /** @type {unknown[]} one damaged run keeps no other from being shown */
    const problems = [];
    await Promise.all([this.chosen, ...this.others].map(async (id) => {
      const run = this.runs.get(id) ?? new RunData();
      this.runs.set(id, run);
      try {
        run.add(await ask(`/api/training/news?run=${id}${run.known()}`));
        problems.push(...run.problems);
      } catch (problem) {
        problems.push(problem);
      }
    }));
    showProblems(problems);
    this.showState();
    this.showCharts();
    this.showHistograms();
  }

  showList() {
    const list = byId("run");
    const options = this.heads.map((head) => element("option", { value: head.id }, `${head.name} (${stateWord(head)})`));
    if (list.textContent !== options.map((each) => each.textContent).join("")) list.replaceChildren(...options);
    list.value = this.chosen;
    const learning = this.heads.filter((head) => head.state === "learning").length;
    byId("subject").textContent = `training runs: ${this.heads.length}, learning now: ${learning}`;
    byId("overlay").hidden = this.heads.length < 2;
    const ids = this.heads.filter((head) => head.id !== this.chosen && (!head.problem || this.others.has(head.id))).map((head) => head.id);
    if (byId("others").dataset.ids === ids.join()) return;
    byId("others").dataset.ids = ids.join();
    byId("others").replaceChildren(...ids.map((id) => {
      const box = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox" }));
      box.checked = this.others.has(id);
      box.addEventListener("change", () => {
        if (box.checked) this.others.add(id); else this.others.delete(id);
        this.update().catch(showProblem);
      });
      return element("label", {}, box, this.heads.find((head) => head.id === id)?.name ?? id);
    }));
  }

  /** @param {string} request */
  async request(request) {
    byId("answer").textContent = "Asking…";
    const answer = await fetch("/api/training/request", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ run: this.chosen, request }),
    }).catch(() => null);
    const text = answer === null ? "The server has ended." : answer.ok ? "" : (await answer.text()).trim();
    byId("answer").textContent = text || "Asked; the run answers after the iteration that it is in.";
    await this.update().catch(showProblem);
  }

  showState() {
    const head = /** @type {Head} */ (this.runs.get(this.chosen)?.head);
    const { progress } = head;
    const parts = [stateWord(head), head.algorithm];
    if (progress) {
      parts.push(`iteration ${progress.iteration}${progress.iterations === null ? "" : ` of ${progress.iterations}`}`, duration(progress.seconds));
      if (head.secondsLeft !== null) parts.push(`about ${duration(head.secondsLeft)} left`);
      const unit = head.reference ? ` % better than ${head.reference}` : "";
      if (progress.best !== null) parts.push(`best validation ${progress.best.toFixed(2)}${unit} at iteration ${progress.bestIteration}`);
    }
    if (head.pending) parts.push(`asked to ${head.pending}`);
    byId("state").textContent = parts.filter(Boolean).join(" · ");
    byId("progress").hidden = !progress || progress.iterations === null;
    byId("progress").value = progress?.iterations ? progress.iteration / progress.iterations : 0;
    const runs = head.state === "learning" || head.state === "paused";
    for (const name of BUTTONS) byId(name).disabled = !runs || head.pending !== "" || !progress?.requests.includes(name);
    if (head.state === "paused") byId("pause").disabled = true; else byId("continue").disabled = true;
    if (!head.pending && byId("answer").textContent?.startsWith("Asked")) byId("answer").textContent = "";
    const log = byId("log");
    const text = this.runs.get(this.chosen)?.log.join("\n") ?? "";
    if (log.textContent !== text) {
      log.textContent = text;
      log.scrollTop = log.scrollHeight;
    }
  }

  showCharts() {
    const shown = [this.chosen, ...this.others].map((id) => /** @type {RunData} */ (this.runs.get(id)));
    const alone = shown.length === 1;
    const { reference } = shown[0].head;
    const drawn = new Set();
    const draw = (/** @type {string} */ title, /** @type {string} */ file, /** @type {string[]} */ names, points = false) => {
      const lines = [];
      const columns = [];
      for (const run of shown) {
        for (const name of names.filter((each) => run.has(file, each))) {
          lines.push({ label: alone ? name : `${name} of ${run.head.name}`, points, dashed: names.indexOf(name) > 0 && !alone });
          columns.push(run.column(file, name));
        }
      }
      if (lines.length === 0) return;
      drawn.add(title);
      let chart = this.charts.get(title);
      if (chart === undefined) {
        const place = element("section", { "aria-label": title });
        byId("charts").append(place);
        chart = new Chart(place, { title, lines, x: "iteration", group: "training" });
        this.charts.set(title, chart);
      }
      chart.setLines(lines);
      chart.show(merged(columns));
      chart.place.hidden = false;
    };
    for (const { title, names } of GROUPS) {
      const first = names.find((name) => shown.some((run) => run.has("metrics.csv", name)));
      if (first === undefined) continue;
      // Losses and measures of exploration have scales of their own, so each has a chart.
      const several = title === "Loss" || title === "Exploration";
      for (const name of several ? names : [first]) draw(several && name !== title.toLowerCase() ? `${title}: ${name}` : title, "metrics.csv", [name]);
    }
    const against = reference ? `, % better than ${reference}` : "";
    draw(`Validation${against}`, "validation.csv", ["value"], true);
    for (const [title, chart] of this.charts) if (!drawn.has(title)) chart.place.hidden = true;
  }

  showHistograms() {
    const head = this.runs.get(this.chosen)?.head;
    const histograms = Object.entries(head?.progress?.histograms ?? {});
    byId("histograms").replaceChildren(...histograms.map(([name, histogram]) => {
      const canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { role: "img", height: "120" }));
      const figure = element("figure", { class: "histogram" }, element("figcaption", {}, `${name} of the newest iteration`), canvas);
      queueMicrotask(() => drawHistogram(canvas, name, histogram, kind(0)));
      return figure;
    }));
  }
}

/** @param {Head} head @returns {string} */
function stateWord(head) {
  if (head.problem) return "cannot be read";
  return { learning: "learns", paused: "paused", done: "done", stopped: "ended early", unknown: "does not run" }[head.state];
}

/** @param {number} seconds @returns {string} */
function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

startPage("training");
ask("/api/training/runs").then((heads) => new Page(heads).start()).catch(showProblem);
