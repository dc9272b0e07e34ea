// The page of workload files: what Deployments of `workload run` request, and what a recording of a scheduler saw on each node.

import { Chart, short } from "../shared/chart.js";
import { ask, byId, element, showProblem, showProblems, table } from "../shared/elements.js";
import { merged } from "../shared/merging.js";
import { startPage } from "../shared/page.js";
import { RecordingView } from "./recording.js";

/**
 * @typedef {{id: string, name: string, kind: "deployments" | "bindings", version: string, problem: string}} File
 * @typedef {{steps: [number, number], deployments: number, pods: number, cpu: number, memory: number}} Filling
 * @typedef {{step: number[], deployments: number[], pods: number[], cpu: number[], memory: number[], resets: number[],
 *   fillings: Filling[], leftOut: number,
 *   list: {name: string, pods: number, cpu: number, memory: number, created: number, deleted: number | null}[]}} Deployments
 * @typedef {import("./recording.js").Bindings} Bindings
 * @typedef {{file: File, content: any}} Read
 * @typedef {{title: string, kind: File["kind"], x: string, unit?: string,
 *   column: (content: any) => {x: number[], y: number[]}}} Series
 */

const EVERY_MILLISECONDS = 3000;
const MOST_CHOSEN = 8;

/** @type {Series[]} */
const SERIES = [
  { title: "Requested CPU, cores", kind: "deployments", x: "step", column: (each) => ({ x: each.step, y: each.cpu }) },
  { title: "Requested memory, GiB", kind: "deployments", x: "step", column: (each) => ({ x: each.step, y: each.memory }) },
  { title: "Pods", kind: "deployments", x: "step", column: (each) => ({ x: each.step, y: each.pods }) },
  { title: "Deployments", kind: "deployments", x: "step", column: (each) => ({ x: each.step, y: each.deployments }) },
  { title: "CPU in use, mean over nodes", kind: "bindings", x: "pods bound", unit: "%", column: (each) => ({ x: each.bound, y: each.mean }) },
  {
    title: "Balance: standard deviation of the CPU in use over nodes", kind: "bindings", x: "pods bound", unit: "%",
    column: (each) => ({ x: each.bound, y: each.deviation }),
  },
];

class Page {
  /** @param {File[]} files */
  constructor(files) {
    this.files = files;
    const readable = files.filter((each) => !each.problem);
    /** @type {Set<string>} */
    this.chosen = new Set(readable.slice(0, MOST_CHOSEN).map((each) => each.id));
    /** @type {Map<string, {version: string, content: any}>} */
    this.read = new Map();
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    /** @type {Map<string, RecordingView>} */
    this.views = new Map();
    this.shown = "";
  }

  start() {
    document.querySelector("main")?.removeAttribute("hidden");
    document.addEventListener("theme", () => this.views.forEach((view) => view.draw()));
    this.showFiles();
    this.follow();
  }

  /** Ask for files that changed, forever: a run may still append to one. */
  async follow() {
    try {
      if (this.shown) this.files = await ask("/api/workload/files");
      await this.update();
    } catch (problem) {
      showProblem(problem);
    }
    setTimeout(() => this.follow(), document.hidden ? 4 * EVERY_MILLISECONDS : EVERY_MILLISECONDS);
  }

  showFiles() {
    byId("subject").textContent = `files: ${this.files.length}`;
    byId("files").replaceChildren(...this.files.map((file) => {
      const box = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox" }));
      box.checked = this.chosen.has(file.id);
      box.addEventListener("change", () => {
        if (box.checked) this.chosen.add(file.id); else this.chosen.delete(file.id);
        this.update().catch(showProblem);
      });
      return element("label", {}, box, file.name);
    }));
  }

  async update() {
    const chosen = this.files.filter((each) => this.chosen.has(each.id));
    /** @type {unknown[]} one damaged file keeps no other from being shown */
    const problems = [];
    await Promise.all(chosen.map(async (file) => {
      if (this.read.get(file.id)?.version === file.version && file.version) return;
      try {
        this.read.set(file.id, { version: file.version, content: await ask(`/api/workload/file?file=${file.id}`) });
      } catch (problem) {
        this.read.delete(file.id);
        problems.push(problem);
      }
    }));
    showProblems(problems);
    const read = chosen.filter((file) => this.read.has(file.id)).map((file) => ({ file, content: this.read.get(file.id)?.content }));
    const shown = read.map(({ file }) => `${file.id}/${file.version}`).join(" ") || "nothing";
    if (shown === this.shown) return;
    this.shown = shown;
    this.showCharts(read);
    this.showRecordings(read.filter(({ file }) => file.kind === "bindings"));
    byId("runs-of-deployments").replaceChildren(...read.filter(({ file }) => file.kind === "deployments").map(deploymentsPart));
  }

  /** @param {Read[]} read */
  showCharts(read) {
    for (const { title, kind, x, unit, column } of SERIES) {
      const those = read.filter(({ file }) => file.kind === kind);
      let chart = this.charts.get(title);
      if (those.length === 0) {
        if (chart !== undefined) chart.place.hidden = true;
        continue;
      }
      const lines = those.map(({ file }) => ({ label: file.name }));
      if (chart === undefined) {
        const place = element("section", { "aria-label": title });
        byId("charts").append(place);
        chart = new Chart(place, { title, lines, x, group: kind, ...(unit ? { unit } : {}) });
        this.charts.set(title, chart);
      }
      chart.place.hidden = false;
      chart.setLines(lines);
      // Resets of several files would not be told apart.
      chart.setMarks(those.length === 1 ? those[0].content.resets : []);
      chart.show(merged(those.map(({ content }) => column(content))));
    }
  }

  /** @param {Read[]} read */
  showRecordings(read) {
    for (const { file, content } of read) {
      const view = this.views.get(file.id);
      if (view === undefined) this.views.set(file.id, new RecordingView(file.name, content)); else view.show(content);
    }
    const views = read.map(({ file }) => /** @type {RecordingView} */ (this.views.get(file.id)));
    byId("recordings").replaceChildren(...views.map((view) => view.place));
    views.forEach((view) => view.draw());
  }
}

/** @param {Read} read @returns {HTMLElement} */
function deploymentsPart({ file, content }) {
  const { fillings, list, leftOut } = /** @type {Deployments} */ (content);
  const scroll = (/** @type {string} */ label, /** @type {HTMLElement} */ child) =>
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label} of ${file.name}` }, child);
  const counts = fillings.map((each, i) => [String(i + 1), each.steps.join(" to "), String(each.deployments), String(each.pods), short(each.cpu), short(each.memory)]);
  const rows = list.map((each) => [each.name, String(each.pods), short(each.cpu), short(each.memory), String(each.created), each.deleted === null ? "" : String(each.deleted)]);
  return element("section", { "aria-label": file.name, class: "part" },
    element("h2", {}, file.name),
    element("p", { class: "keys" }, "The file has the Deployments that were created and deleted, in order; those that were deleted together are one step. It has "
      + "neither times nor nodes, so there is no use of nodes and no waiting time in it."),
    element("h3", {}, "Fillings: what was there when most pods were"),
    scroll("Fillings", table(["filling", "steps", "Deployments", "pods", "CPU, cores", "memory, GiB"], counts, [0, 1, 2, 3, 4, 5])),
    element("h3", {}, "Deployments"),
    scroll("Deployments", table(["Deployment", "pods", "CPU of each, cores", "memory, GiB", "created in step", "deleted in step"], rows, [1, 2, 3, 4, 5])),
    ...(leftOut ? [element("p", { class: "keys" }, `${leftOut} more are not listed.`)] : []));
}

startPage("workload");
ask("/api/workload/files").then((files) => new Page(files).start()).catch(showProblem);
