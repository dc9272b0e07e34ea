// Lines over time or over steps, drawn by uPlot. The page loads /static/uplot/uPlot.min.css.

import uPlot from "../uplot/uPlot.esm.js";
import { colourOf, kind } from "./colours.js";
import { element } from "./elements.js";

/** @typedef {(number | null | undefined)[]} Values null: nothing is known there; undefined: the line goes on without a point there */
/** @typedef {{label: string, look?: import("./colours.js").PolicyLook}} Line */
/**
 * What a chart shows.
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {Line[]} lines
 * @property {string} [unit] of the values, such as "s" or "%"
 * @property {string} [x] what the x axis is; left out: times in seconds since 1970
 * @property {number} [height] in CSS pixels
 * @property {number} [most] top of the y axis; left out: that of the values
 * @property {string} [group] charts of one group share the cursor
 * @property {(min: number, max: number) => void} [onZoom] called when a person has dragged over a part, or double-clicked for all
 */

const HEIGHT = 180;
const NARROW = 160;
const LABEL_WIDTH = 68; // of a time with seconds
const DASHES = [[], [6, 4], [2, 3]];
const KINDS = 8;
const [MOST_ENTRIES, FOLDED_ENTRIES] = [8, 5]; // of the legend: beyond so many it is folded to so few
const DAY = 86400;

export class Chart {
  /** @param {HTMLElement} place an element of the page that the chart fills @param {ChartOptions} options */
  constructor(place, options) {
    this.place = place;
    this.options = options;
    this.canvas = element("div", { role: "img", "aria-label": options.title });
    /** @type {HTMLElement[]} */
    this.entries = [];
    this.more = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "link" }));
    this.isFolded = true;
    this.more.addEventListener("click", () => { this.isFolded = !this.isFolded; this.showLegend(); });
    place.classList.add("chart");
    place.replaceChildren(element("h3", {}, options.title), this.canvas, element("p", { class: "lines" }, this.more));
    /** @type {uPlot.AlignedData} */
    this.data = [[], ...options.lines.map(() => [])];
    /** @type {[number, number] | null} the part of the x axis that is shown, null: all */
    this.range = null;
    /** @type {number[]} places of the x axis with a dashed line */
    this.marks = [];
    this.plot = this.makePlot(this.width);
    this.showLegend();
    document.addEventListener("theme", () => { this.plot.redraw(); this.showLegend(); });
    new ResizeObserver(() => this.fit()).observe(this.canvas);
  }

  get width() {
    return Math.max(NARROW, this.canvas.clientWidth);
  }

  /** @param {number} width @returns {uPlot} */
  makePlot(width) {
    const { options } = this;
    const axis = () => ({ stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });
    const span = (/** @type {number} */ least, /** @type {number} */ most) => this.range ?? (least < most ? [least, most] : [least - 1, most + 1]);
    return new uPlot({
      width,
      height: options.height ?? HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false }, ...(options.group ? { sync: { key: options.group } } : {}) },
      scales: {
        x: { time: options.x === undefined, range: (_, least, most) => /** @type {[number, number]} */ (least === null ? [0, 1] : span(least, most)) },
        y: { range: (_, least, most) => /** @type {[number, number]} */ (this.heightRange(least, most)) },
      },
      axes: [
        { ...axis(), size: 36, space: LABEL_WIDTH, ...(options.x === undefined ? { values: (_, at, __, ___, step) => at.map((each) => moment(each, step)) } : { label: options.x, labelSize: 20 }) },
        { ...axis(), size: 56, values: (_, at) => at.map((each) => `${short(each)}${options.unit === "%" ? " %" : ""}`) },
      ],
      series: [{}, ...options.lines.map((line, i) => ({
        label: line.label, stroke: () => lineColour(line, i), width: 1.5, dash: dashOf(line, i),
        points: { show: false }, spanGaps: false,
      }))],
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width < 2) return;
          const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((each) => plot.posToVal(each, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.zoom(from, to);
        }],
        setCursor: [() => this.showLegend()],
        drawAxes: [(plot) => this.drawMarks(plot)],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => this.zoom(-Infinity, Infinity))],
      },
    }, this.data, this.canvas);
  }

  /** @param {number | null} least @param {number | null} most @returns {[number, number]} */
  heightRange(least, most) {
    if (this.options.most !== undefined) return [0, this.options.most];
    if (least === null || most === null) return [0, 1];
    if (least >= 0) return [0, most > 0 ? most * 1.05 : 1];
    const room = (most - least || Math.abs(least)) * 0.05;
    return [least - room, most + room];
  }

  /** Show values: those of the x axis, in order, then of each line. @param {[number[], ...Values[]]} columns */
  show(columns) {
    this.data = columns;
    this.plot.setData(columns);
    this.showLegend();
  }

  /** Mark places of the x axis from the next `show` on. @param {number[]} marks */
  setMarks(marks) {
    this.marks = marks;
  }

  /** @param {uPlot} plot */
  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("--quiet")();
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    for (const mark of this.marks) {
      const x = Math.round(plot.valToPos(mark, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    }
    ctx.stroke();
    ctx.restore();
  }

  /** Have other lines from the next `show` on. @param {Line[]} lines */
  setLines(lines) {
    const same = JSON.stringify(lines) === JSON.stringify(this.options.lines);
    if (same) return;
    this.options = { ...this.options, lines };
    const { width } = this.plot; // a chart beside it may be hidden now, and `fit` is called for other widths than this alone
    this.plot.destroy();
    this.data = [[], ...lines.map(() => [])];
    this.plot = this.makePlot(width);
  }

  /** Show a part of the x axis. @param {number} from @param {number} to both infinite: all */
  setRange(from, to) {
    this.range = Number.isFinite(from) && Number.isFinite(to) && from < to ? [from, to] : null;
    this.plot.setData(this.data);
  }

  /** @param {number} from @param {number} to */
  zoom(from, to) {
    if (this.options.onZoom) this.options.onZoom(from, to); else this.setRange(from, to);
  }

  fit() {
    if (this.width !== this.plot.width) this.plot.setSize({ width: this.width, height: this.plot.height });
  }

  /** The lines' names with their last values, or those under the cursor; the same in words for screen readers. */
  showLegend() {
    const { lines, unit } = this.options;
    const last = this.data[0].length - 1;
    const at = this.plot.cursor.idx ?? last;
    const value = (/** @type {number} */ i, /** @type {number} */ index) => {
      let found = this.data[i + 1][index];
      for (let before = index - 1; found === undefined && before >= 0; before -= 1) found = this.data[i + 1][before];
      return found === null || found === undefined ? "–" : `${short(found)}${unit ? ` ${unit}` : ""}`;
    };
    const where = at === last || at < 0 ? [] : [element("span", {}, this.options.x === undefined ? moment(this.data[0][at], 1) : `${this.options.x} ${short(this.data[0][at])}`)];
    const isLong = lines.length > MOST_ENTRIES;
    this.more.hidden = !isLong;
    this.more.textContent = this.isFolded ? `${lines.length - FOLDED_ENTRIES} more` : "show fewer";
    this.more.setAttribute("aria-expanded", String(!this.isFolded));
    this.entries.forEach((entry) => entry.remove()); // but not the button, which would lose the focus
    this.entries = [...lines.slice(0, isLong && this.isFolded ? FOLDED_ENTRIES : undefined).map((line, i) => {
      const sample = element("i");
      sample.style.borderTop = `3px ${dashOf(line, i).length ? "dashed" : "solid"} ${lineColour(line, i)}`;
      return element("span", { title: line.label }, sample, element("bdi", {}, line.label), ` ${value(i, at)}`);
    }), ...where];
    this.more.before(...this.entries);
    this.canvas.setAttribute("aria-label", this.data[0].length === 0 ? `${this.options.title}: no values yet`
      : `${this.options.title}: ${lines.map((line, i) => `${line.label} ${value(i, last)}${extremes(this.data[i + 1])}`).join("; ")}`);
  }
}

/** @param {ArrayLike<number | null | undefined>} values @returns {string} */
function extremes(values) {
  let [least, most] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i];
    if (value === null || value === undefined) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return least < most ? ` (from ${short(least)} to ${short(most)})` : "";
}

/** @param {string} name of a CSS variable @returns {() => string} */
function colour(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name);
}

/** @param {Line} line @param {number} i @returns {string} */
function lineColour(line, i) {
  return line.look ? colourOf(line.look) : kind(i);
}

/** Lines beyond the palette repeat its colours with dashes. @param {Line} line @param {number} i @returns {number[]} */
function dashOf(line, i) {
  return line.look?.dash ?? DASHES[Math.floor(i / KINDS) % DASHES.length];
}

/** @param {number} seconds since 1970 @param {number} step between two that are shown @returns {string} */
function moment(seconds, step) {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}), hour12: false });
  return step < DAY ? time : date.toLocaleDateString();
}

/** @param {number} value @returns {string} */
export function short(value) {
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : Number(value.toPrecision(4)).toString();
}
