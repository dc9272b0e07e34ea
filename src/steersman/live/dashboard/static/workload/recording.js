// A recording of a scheduler: nodes over time as a map, and each node at a moment that a person chooses.

import { fitted } from "../shared/canvas.js";
import { amounts } from "../shared/colours.js";
import { short } from "../shared/chart.js";
import { element, table } from "../shared/elements.js";

/**
 * @typedef {{title: string, unit: string, counted: boolean, values: number[][]}} Quantity
 * @typedef {{pods: number, nodes: string[], bound: number[], quantities: Quantity[], mean: number[], deviation: number[],
 *   resets: number[]}} Bindings
 */

const [LEAST_ROW, MOST_ROW, MOST_HEIGHT, NAMES] = [4, 18, 480, 76];
const NAMED_FROM = 12;

export class RecordingView {
  /** @param {string} name of the file @param {Bindings} content */
  constructor(name, content) {
    this.content = content;
    this.select = /** @type {HTMLSelectElement} */ (element("select"));
    this.slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: "0", "aria-label": `Moment of ${name}` }));
    this.now = element("output");
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { role: "img", class: "timemap" }));
    this.legend = element("p", { class: "lines" });
    this.table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Nodes of ${name}` });
    this.said = element("p", { class: "keys" });
    this.place = element("section", { "aria-label": name, class: "part" }, element("h2", {}, name),
      element("div", { class: "controls" }, element("label", {}, "Nodes by ", this.select), element("label", { class: "slider" }, this.slider), this.now),
      this.canvas, this.legend, this.said, element("h3", {}, "Nodes at this moment"), this.table);
    this.select.addEventListener("change", () => this.draw());
    this.slider.addEventListener("input", () => this.draw());
    this.canvas.addEventListener("click", (event) => { this.slider.value = String(this.columnAt(event)); this.draw(); });
    new ResizeObserver(() => this.drawMap()).observe(this.canvas);
    this.show(content);
  }

  /** Show what the file has now; who looks at its end goes on to do so. @param {Bindings} content */
  show(content) {
    const atEnd = this.slider.value === this.slider.max || this.slider.max === "";
    const chosen = this.select.value;
    this.content = content;
    this.select.replaceChildren(...content.quantities.map(({ title }) => element("option", { value: title }, title)));
    if (chosen) this.select.value = chosen;
    this.slider.max = String(content.bound.length - 1);
    if (atEnd) this.slider.value = this.slider.max;
    const counted = content.quantities.some((each) => each.counted);
    this.said.textContent = `${content.nodes.length} nodes, ${content.pods} pods, cleared ${content.resets.length === 1 ? "once" : `${content.resets.length} times`}. The file has the order in which pods were bound, `
      + `and no times, so there is no waiting time in it.${counted ? " Pods are counted from its rows." : ""} The cluster after each binding is on the screen Simulation.`;
  }

  /** @returns {Quantity} */
  get quantity() {
    return this.content.quantities.find(({ title }) => title === this.select.value) ?? this.content.quantities[0];
  }

  get at() {
    return Number(this.slider.value);
  }

  /** Height of a node's row, and width of the names before it, pixels. */
  get layout() {
    const row = Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(MOST_HEIGHT / this.content.nodes.length)));
    return { row, left: row >= NAMED_FROM ? NAMES : 0 };
  }

  draw() {
    const { bound, nodes, quantities } = this.content;
    this.now.textContent = `${bound[this.at]} of ${this.content.pods} pods bound`;
    this.slider.setAttribute("aria-valuetext", `${bound[this.at]} pods bound`);
    this.table.replaceChildren(table(["node", ...quantities.map(({ title, unit }) => (unit ? `${title}, ${unit}` : title))],
      nodes.map((node, n) => [node, ...quantities.map(({ values }) => short(values[n][this.at]))]), quantities.map((_, i) => i + 1)));
    this.drawMap();
  }

  drawMap() {
    const { nodes, bound, resets } = this.content;
    const { title, unit, values } = this.quantity;
    const { row, left } = this.layout;
    this.canvas.style.height = `${row * nodes.length + 1}px`;
    const drawing = fitted(this.canvas);
    if (drawing === null) return;
    const { context, width, height } = drawing;
    const style = getComputedStyle(document.documentElement);
    const cell = (width - left) / bound.length;
    const most = unit === "%" ? 100 : Math.max(1, ...values.map((each) => each.reduce((one, other) => Math.max(one, other), 0)));
    const idle = style.getPropertyValue("--idle");
    const amount = amounts();
    values.forEach((line, n) => line.forEach((value, i) => {
      context.fillStyle = value === 0 ? idle : amount(value / most);
      context.fillRect(left + i * cell, n * row, Math.ceil(cell), row - (row > LEAST_ROW ? 1 : 0));
    }));
    if (left) {
      context.fillStyle = style.getPropertyValue("--text");
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      nodes.forEach((node, n) => context.fillText(node, 0, n * row + row / 2, NAMES - 6));
    }
    const line = (/** @type {number} */ x, /** @type {string} */ colour, /** @type {number[]} */ dash) => {
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height);
      context.stroke();
    };
    for (const reset of resets) line(left + (bound.findIndex((each) => each > reset) * cell), "#d55e00", [4, 3]);
    line(left + (this.at + 0.5) * cell, style.getPropertyValue("--text"), []);
    const now = values.map((each) => each[this.at]);
    this.canvas.setAttribute("aria-label", `${title} by node while pods were bound; ${bound[this.at]} pods bound: from ${short(Math.min(...now))} to ${short(Math.max(...now))}`);
    const sample = (/** @type {string} */ colour, /** @type {string} */ text) => {
      const shown = element("i", { class: "sample" });
      shown.style.background = colour;
      return element("span", {}, shown, text);
    };
    const dashes = element("i");
    dashes.style.borderTop = "3px dashed #d55e00";
    this.legend.replaceChildren(sample(idle, "0"), sample(amount(0.5), short(most / 2)), sample(amount(1), `${short(most)}${unit && ` ${unit}`}`),
      ...(resets.length ? [element("span", {}, dashes, "the cluster was cleared")] : []));
  }

  /** @param {MouseEvent} event @returns {number} */
  columnAt({ offsetX }) {
    const { bound } = this.content;
    const { left } = this.layout;
    return Math.max(0, Math.min(bound.length - 1, Math.floor(((offsetX - left) / (this.canvas.clientWidth - left)) * bound.length)));
  }
}
