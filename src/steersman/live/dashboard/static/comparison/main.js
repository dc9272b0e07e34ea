// The page of comparisons: folders, workload, metric and baseline are chosen; the server has the numbers.

import { Chart, short } from "../shared/chart.js";
import { colourOf } from "../shared/colours.js";
import { ask, byId, element, showProblem, showProblems, table } from "../shared/elements.js";
import { startPage } from "../shared/page.js";
import { drawAxis, drawBar } from "./bars.js";

/**
 * @typedef {{workload: string, protocol: string}} Subject
 * @typedef {{id: string, name: string, version: string, subjects: Subject[], policies: string[], metrics: Record<string, string[]>,
 *   baseline: string, problem: string}} Folder
 * @typedef {[number | null, number | null]} Interval
 * @typedef {{folder: string, policy: string, runs: number, mean: number | null, interval: Interval,
 *   baseline: string, difference: number | null, difference_interval: Interval, interval_over: string}} Row
 * @typedef {{folder: string, policy: string, mean: (number | null)[]}} Curve
 * @typedef {Record<string, import("../shared/colours.js").PolicyLook>} Looks by policy
 * @typedef {{versions: Record<string, string>, problems: string[], metric: {title: string, largerIsBetter: boolean | null, digits: number | null},
 *   looks: Looks, workloads: Record<string, Row[]>, sentences: {folder: string, sentence: string}[],
 *   kinds: {folder: string, title: string, kinds: string[], rows: {name: string, cells: string[], notes: string[]}[]}[],
 *   charts: {title: string, x: number[], curves: Curve[]}[]}} Comparison
 */

const EVERY_MILLISECONDS = 3000;
const CHOICES = ["workload", "metric", "baseline"];
/** What decides in a protocol; in others the allocation at the end. @type {Record<string, string[]>} */
const DECIDES = { timed: ["waiting_time_mean_seconds"], latency: ["soft_limits_kept_percent"] };
const ALLOCATION = ["gpu_allocation_percent", "cpu_allocation_percent"];
const ALL = "all";
/** Of the lines of further folders: a policy has its colour in all of them. */
const DASHES_OF_FOLDERS = [[14, 3], [2, 2, 8, 2], [6, 2, 2, 2, 2, 2]];

/** What intervals are over, see `interval_over` in summary.csv. @type {Record<string, string>} */
const INTERVALS = {
  seeds: "Intervals are over seeds.",
  blocks: "Intervals are over blocks of this stretch of the trace alone.",
  "": "The arrivals are given once, so there is no interval.",
};

class Page {
  /** @param {Folder[]} folders */
  constructor(folders) {
    this.folders = folders;
    const readable = folders.filter((each) => !each.problem);
    /** @type {Set<string>} */
    this.chosen = new Set(readable.slice(0, 1).map((each) => each.id));
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    this.asked = 0;
    this.protocol = "";
    /** @type {unknown[]} why chosen folders are not shown */
    this.problems = [];
    /** @type {{name: string, rows: Row[]}[]} the chosen workload's, then those of all workloads */
    this.bars = [];
    this.several = false;
    /** @type {Looks} */
    this.looks = {};
    /** @type {number | null} decimals of the metric */
    this.digits = null;
  }

  start() {
    for (const name of CHOICES) {
      byId(name).addEventListener("change", () => {
        if (name === "workload") this.showMetrics();
        this.update();
      });
    }
    document.addEventListener("theme", () => this.drawBars());
    window.addEventListener("resize", () => this.drawBars());
    byId("workloads").parentElement?.addEventListener("toggle", () => this.drawBars());
    document.querySelector("main")?.removeAttribute("hidden");
    byId("subject").textContent = `folders with results of evaluate: ${this.folders.length}`;
    this.showFolders();
    this.update();
    setTimeout(() => this.follow(), EVERY_MILLISECONDS);
  }

  /** Ask for folders that were written anew, forever. */
  async follow() {
    try {
      await this.reload();
      showProblems(this.problems);
    } catch (problem) {
      showProblem(problem);
    }
    setTimeout(() => this.follow(), document.hidden ? 4 * EVERY_MILLISECONDS : EVERY_MILLISECONDS);
  }

  /** Show the folders as they are now, if one of them has changed. */
  async reload() {
    /** @type {Folder[]} */
    const folders = await ask("/api/comparison/folders");
    if (JSON.stringify(folders) === JSON.stringify(this.folders)) return;
    this.folders = folders;
    this.showFolders();
    await this.update();
  }

  showFolders() {
    byId("folders").replaceChildren(...this.folders.map((folder) => {
      const box = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox" }));
      box.checked = this.chosen.has(folder.id);
      box.disabled = folder.problem !== "" && !box.checked;
      box.addEventListener("change", () => {
        if (box.checked) this.chosen.add(folder.id); else this.chosen.delete(folder.id);
        this.showChoices();
        this.update();
      });
      return element("label", {}, box, folder.problem ? `${folder.name}: ${folder.problem}` : folder.name);
    }));
    this.showChoices();
  }

  get open() {
    return this.folders.filter((each) => this.chosen.has(each.id));
  }

  /** What the chosen folders have; what was chosen before stays if it is there. */
  showChoices() {
    const subjects = this.open.flatMap((each) => each.subjects).map((each) => JSON.stringify([each.workload, each.protocol]));
    fill("workload", [...new Set(subjects)], (text) => JSON.parse(text).join(", "), subjects.find((each) => JSON.parse(each)[1] === "inflation"));
    this.showMetrics();
    fill("baseline", [...new Set(this.open.flatMap((each) => each.policies))], (text) => text, this.open[0]?.baseline);
  }

  /** The metrics of the chosen workload's protocol; in another protocol than before what decides there. */
  showMetrics() {
    const protocol = byId("workload").value ? JSON.parse(byId("workload").value)[1] : "";
    const metrics = [...new Set(this.open.flatMap((each) => each.metrics[protocol] ?? []))];
    if (protocol !== this.protocol) byId("metric").replaceChildren();
    this.protocol = protocol;
    fill("metric", metrics, (text) => text.replaceAll("_", " "), [...(DECIDES[protocol] ?? []), ...ALLOCATION].find((each) => metrics.includes(each)));
  }

  async update() {
    this.asked += 1;
    const asked = this.asked;
    const { open } = this;
    byId("controls").hidden = !byId("workload").value;
    if (!byId("workload").value) {
      this.clear(open.map((each) => each.problem).filter(Boolean), "Choose results above.");
      return;
    }
    const [workload, protocol] = JSON.parse(byId("workload").value);
    const query = new URLSearchParams([...open.map((each) => ["folder", each.id]), ["workload", workload],
      ["protocol", protocol], ["metric", byId("metric").value], ["baseline", byId("baseline").value]]);
    try {
      /** @type {Comparison} */
      const found = await ask(`/api/comparison/metric?${query}`);
      if (asked !== this.asked) return;
      if (open.some(({ id, version }) => (found.versions[id] ?? version) !== version)) await this.reload(); // the choices are of former files
      else this.show(found, workload);
    } catch (problem) {
      if (asked === this.asked) this.clear([problem]);
    }
  }

  /** Show nothing, since nothing that is chosen can be read. @param {unknown[]} problems @param {string} hint */
  clear(problems, hint = "") {
    this.problems = problems;
    showProblems(problems);
    byId("sentences").replaceChildren(element("p", {}, hint));
    byId("figures").hidden = true;
    this.bars = [];
  }

  /** @param {Comparison} found @param {string} workload */
  show(found, workload) {
    this.problems = found.problems;
    showProblems(found.problems);
    byId("figures").hidden = false;
    this.several = Object.keys(found.versions).length > 1;
    const { several } = this;
    const rows = found.workloads[workload] ?? [];
    const better = { true: " Higher is better.", false: " Lower is better." }[String(found.metric.largerIsBetter)] ?? "";
    const { title, digits } = found.metric;
    [this.digits, this.looks] = [digits, found.looks];
    const over = rows.find((row) => row.difference !== null)?.interval_over ?? "seeds";
    const intervalTitle = over === "blocks" ? "interval of this stretch" : "95 % interval";
    const baselines = [...new Set(rows.map((row) => row.baseline).filter(Boolean))];
    byId("title").textContent = baselines.length ? `${title}: difference from ${baselines.join(" or ")}` : title;
    byId("bars-key").textContent = `Bars: mean${baselines.length ? " difference" : ""} over seeds; lines on them: ${intervalTitle}.`;
    byId("sentences").replaceChildren(...found.sentences.map(({ folder, sentence }) =>
      element("p", {}, several ? `${folder}: ${sentence}` : sentence)));
    this.bars = [{ name: "", rows }];
    const others = Object.entries(found.workloads).filter(([name]) => name !== ALL);
    this.bars.push(...(others.length > 1 ? others.map(([name, of]) => ({ name, rows: of })) : []));
    this.drawBars();
    byId("workloads").parentElement?.toggleAttribute("hidden", others.length < 2);
    // What decides comes first, so that it is there without scrolling on a phone.
    const titles = ["policy", ...(several ? ["from"] : []), "difference", intervalTitle, "mean", intervalTitle, "seeds", "against"];
    const first = several ? 2 : 1;
    byId("table").replaceChildren(table(titles, rows.map((row) => [
      row.policy, ...(several ? [row.folder] : []), number(row.difference, digits, true), interval(row.difference_interval, digits, true),
      number(row.mean, digits), interval(row.interval, digits), String(row.runs), row.baseline,
    ]), [0, 1, 2, 3, 4].map((i) => i + first)));
    byId("table").append(element("p", { class: "keys" }, `Differences are paired; a difference is significant if its interval excludes 0. ${INTERVALS[over] ?? ""}${better}`));
    byId("kinds").replaceChildren(...found.kinds.flatMap(({ folder, title: of, kinds, rows: lines }) => [
      element("h2", {}, several ? `${folder}: ${of}` : of),
      table(["policy", ...kinds.flatMap((each) => [each, `difference, ${intervalTitle}`])],
        lines.map(({ name, cells, notes }) => [name, ...cells.flatMap((cell, i) => [cell, notes[i] ?? ""])]), kinds.flatMap((_, i) => [2 * i + 1, 2 * i + 2])),
    ]));
    this.showCharts(found);
  }

  /** @param {Comparison} found */
  showCharts(found) {
    for (const chart of this.charts.values()) chart.place.hidden = true;
    for (const { title, x, curves } of found.charts) {
      const folders = [...new Set(curves.map((each) => each.folder))];
      const lines = curves.map(({ policy, folder }) => {
        const look = found.looks[policy];
        const further = folders.indexOf(folder) - 1;
        return { label: this.several ? `${policy} (${folder})` : policy,
          look: further < 0 ? look : { ...look, dash: DASHES_OF_FOLDERS[further % DASHES_OF_FOLDERS.length] } };
      });
      let chart = this.charts.get(title);
      if (chart === undefined) {
        const place = element("section", { "aria-label": title });
        byId("charts").append(place);
        chart = new Chart(place, { title, lines, x: "arrived GPU demand, % of all GPUs", height: 260, group: "comparison" });
        this.charts.set(title, chart);
      }
      chart.place.hidden = false;
      chart.setLines(lines);
      chart.show([x, ...curves.map((each) => each.mean)]);
    }
  }

  drawBars() {
    const drawings = this.bars.map(({ name, rows }) => ({ name, ...barsOf(rows, this.looks, this.several, this.digits) }));
    byId("bars").replaceChildren(...drawings.slice(0, 1).map((each) => each.place));
    byId("workloads").replaceChildren(...drawings.slice(1).flatMap(({ name, place }) => [element("h3", {}, name), place]));
    for (const { draw } of drawings) draw();
  }
}

/**
 * @param {Row[]} rows @param {Looks} looks @param {boolean} several @param {number | null} digits
 * @returns {{place: HTMLElement, draw: () => void}}
 */
function barsOf(rows, looks, several, digits) {
  // Bars of values from 0 would look alike where policies differ by a point, so differences are drawn where there are any.
  const areDifferences = rows.some((row) => row.difference !== null);
  const shown = areDifferences ? rows.filter((row) => row.difference !== null)
    .map((row) => ({ ...row, mean: row.difference, interval: row.difference_interval })) : rows;
  const ends = shown.flatMap((row) => [row.mean, ...row.interval]).filter((each) => each !== null);
  const [least, most] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const range = least < most ? { low: least, high: most } : { low: 0, high: 1 };
  /** @type {(() => void)[]} */
  const draws = [];
  const place = element("div", { class: "bars" });
  for (const row of shown) {
    const name = several ? `${row.policy} (${row.folder})` : row.policy;
    const text = number(row.mean, digits, areDifferences);
    const canvas = /** @type {HTMLCanvasElement} */ (element("canvas", {
      role: "img", "aria-label": `${name}: ${text}, ${interval(row.interval, digits, areDifferences) || "no interval"}`,
    }));
    place.append(element("span", { class: "name" }, name), canvas, element("span", { class: "value" }, text));
    draws.push(() => drawBar(canvas, row, range, colourOf(looks[row.policy])));
  }
  const axis = /** @type {HTMLCanvasElement} */ (element("canvas", { class: "axis", "aria-hidden": "true" }));
  place.append(axis);
  draws.push(() => drawAxis(axis, range));
  return { place, draw: () => draws.forEach((each) => each()) };
}

/** @param {string} id @param {string[]} values @param {(value: string) => string} label @param {string | undefined} first */
function fill(id, values, label, first = values[0]) {
  const before = byId(id).value;
  byId(id).replaceChildren(...values.map((value) => element("option", { value }, label(value))));
  byId(id).value = values.includes(before) ? before : first ?? "";
}

/** @param {number | null} value @param {number | null} digits decimals, null: four digits in all @param {boolean} signed @returns {string} */
function number(value, digits, signed = false) {
  if (value === null) return "–";
  const size = Math.abs(value);
  const decimals = digits ?? (size >= 1000 ? 0 : null);
  const text = decimals === null ? short(size) : size.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return value < 0 ? `−${text}` : signed ? `+${text}` : text;
}

/** @param {Interval} ends @param {number | null} digits @param {boolean} signed @returns {string} */
function interval([low, high], digits, signed = false) {
  return low === null || high === null ? "" : `${number(low, digits, signed)} to ${number(high, digits, signed)}`;
}

startPage("comparison");
ask("/api/comparison/folders").then((folders) => new Page(folders).start()).catch(showProblem);
