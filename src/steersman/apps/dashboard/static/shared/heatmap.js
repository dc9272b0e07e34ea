// Nodes and their GPUs on a canvas: a column of devices for each node, in groups. Only nodes that changed are drawn again.

import { amounts, kind, ownColours } from "./colours.js";
import { countOf } from "./elements.js";

/**
 * Columns of nodes, see `NodeColumns` of columns.py: `gpus` are devices, each with a cell and so many GPUs as `unit` says; `counted` are further GPUs.
 * @typedef {{name: string[], model: string[], gpus: number[], unit: number[], counted: number[], cpu: number[], memory: number[],
 *   groups: Record<string, string[]>}} NodeColumns
 */
/**
 * What a map draws: nodes, and milli and pods of each GPU. `first` has the position of each node's first GPU in `gpu` and
 * `sharing`; `cpu` is the milli-CPU that each node's pods request; `fragmented` has the idle milli of a GPU that are of no
 * use to pods of the profile. `counted` has how many of each node's counted GPUs are in use; `closed` says
 * why a node gets no pods, "" if it does.
 * @typedef {{nodes: NodeColumns, first: Int32Array, gpu: Int32Array, sharing: Int16Array, cpu: Float64Array, counted: Float64Array,
 *   fragmented: (node: number, device: number) => number, closed?: (node: number) => string}} MapState
 */
/** @typedef {"used" | "shared" | "fragmented" | "model"} Mode */
/** How a cell looks: its colour, and that of a line across it. @typedef {{colour: string, line?: string}} Look */

export const GPU_MILLI = 1000;

const [CELL, GAP, HEADING, MARGIN] = [7, 2, 20, 6];
/** Of what `drawCell` draws, in CSS pixels. */
export const CELL_SIZE = { width: CELL, height: CELL - 1 };

/**
 * Looks of GPUs on the page as it is now: `used` and `wasted` by the share of the GPU.
 * @typedef {{idle: Look, full: Look, used: (share: number) => Look, wasted: (share: number) => Look}} Looks
 * @returns {Looks}
 */
export function looks() {
  const style = getComputedStyle(document.documentElement);
  const line = style.getPropertyValue("--back");
  const amount = amounts();
  return {
    idle: { colour: style.getPropertyValue("--idle") },
    full: { colour: style.getPropertyValue("--full") },
    used: (share) => ({ colour: amount(share) }),
    // The end of the ramp: what is wasted is told from idle GPUs without its line, too.
    wasted: (share) => ({ colour: amount(0.75 + share / 4), line }),
  };
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {Look} look */
export function drawCell(context, x, y, { colour, line }) {
  context.fillStyle = colour;
  context.fillRect(x, y, CELL, CELL - 1);
  if (line === undefined) return;
  context.fillStyle = line;
  for (let i = 0; i < CELL - 1; i += 1) context.fillRect(x + i, y + CELL - 2 - i, 1.5, 1);
}

export class HeatMap {
  /** @param {HTMLCanvasElement} canvas @param {MapState} state @param {(node: number) => void} onChoose */
  constructor(canvas, state, onChoose) {
    this.canvas = canvas;
    this.state = state;
    const context = canvas.getContext("2d");
    if (context === null) throw new Error("this browser has no canvas");
    this.context = context;
    /** @type {Mode} */
    this.mode = "used";
    this.group = "model";
    this.chosen = -1;
    /** @type {number[]} the node that this run took, then the other run's */
    this.marked = [];
    /** @type {{x: number, y: number}[]} */
    this.places = [];
    /** @type {{text: string, y: number}[]} */
    this.headings = [];
    /** @type {number[]} nodes in the order of the map */
    this.order = [];
    this.models = modelsOf(state);
    this.looks = looks();
    this.onChoose = onChoose;
    canvas.tabIndex = 0;
    canvas.addEventListener("click", (event) => this.onChoose(this.nodeAt(event)));
    canvas.addEventListener("mousemove", (event) => { canvas.title = this.describe(this.nodeAt(event)); });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Show another cluster, or other nodes. @param {MapState} state */
  show(state) {
    this.state = state;
    this.models = modelsOf(state);
    this.layOut();
  }

  /** Lay the nodes out for the present width, and draw all. */
  layOut() {
    const { nodes } = this.state;
    const width = this.canvas.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    const values = nodes.groups[this.group] ?? nodes.model;
    /** @type {Map<string, number[]>} */
    const groups = new Map();
    values.forEach((value, n) => {
      const members = groups.get(value);
      if (members) members.push(n); else groups.set(value, [n]);
    });
    const sorted = [...groups].sort((one, other) => other[1].length - one[1].length || (one[0] < other[0] ? -1 : 1));
    this.places = new Array(values.length);
    this.headings = [];
    this.order = [];
    let y = 0;
    for (const [name, members] of sorted) {
      const heading = name || `no ${nodes.groups[this.group] ? this.group : "GPU model"}`;
      this.headings.push({ text: `${heading}: ${countOf(members.length, "node")}`, y });
      y += HEADING;
      const rows = Math.max(1, ...members.map((n) => nodes.gpus[n]));
      const height = rows * CELL + MARGIN;
      let x = 0;
      for (const n of members) {
        if (x + CELL > width) { x = 0; y += height; }
        this.places[n] = { x, y };
        this.order.push(n);
        x += CELL + GAP;
      }
      y += height;
    }
    this.canvas.style.height = `${y}px`;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(y * ratio));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw(null);
  }

  /** @param {Set<number> | null} changed null: all nodes */
  draw(changed) {
    const { context } = this;
    this.text = getComputedStyle(document.documentElement).getPropertyValue("--text");
    if (changed === null) {
      this.looks = looks();
      context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      context.fillStyle = this.text;
      context.font = "13px system-ui, sans-serif";
      context.textBaseline = "top";
      for (const { text, y } of this.headings) context.fillText(text, 0, y + 3);
      this.order.forEach((n) => this.drawNode(n));
    } else {
      changed.forEach((n) => this.drawNode(n));
    }
    this.marked.forEach((n, i) => this.outline(n, kind(5), i > 0));
    if (this.chosen >= 0) this.outline(this.chosen, this.text);
  }

  /** @param {number} n */
  drawNode(n) {
    const { context, state } = this;
    const { x, y } = this.places[n];
    const devices = state.nodes.gpus[n];
    if (devices === 0) drawCell(context, x, y, this.mode === "model" ? this.lookOfModel(n) : this.lookOfUse(this.used(n)));
    for (let d = 0; d < devices; d += 1) drawCell(context, x, y + d * CELL, this.look(n, d));
    if (state.closed?.(n)) {
      context.fillStyle = kind(5);
      context.fillRect(x + CELL / 2 - 1, y, 2, Math.max(1, devices) * CELL - 1);
    }
  }

  /** Share of a node without devices that is in use: of its counted GPUs, or of its CPU. @param {number} n @returns {number} */
  used(n) {
    const { nodes, counted, cpu } = this.state;
    return nodes.counted[n] ? counted[n] / nodes.counted[n] : cpu[n] / Math.max(1, nodes.cpu[n]);
  }

  /** @param {number} n @param {number} d @returns {Look} */
  look(n, d) {
    const at = this.state.first[n] + d;
    const used = this.state.gpu[at];
    if (this.mode === "model") return this.lookOfModel(n);
    if (this.mode === "used") return this.lookOfUse(used / GPU_MILLI);
    if (this.mode === "shared") {
      const pods = this.state.sharing[at];
      return pods === 0 ? this.looks.idle : { colour: kind(pods === 1 ? (used >= GPU_MILLI ? 0 : 4) : 1) };
    }
    const idle = GPU_MILLI - used;
    if (idle <= 0) return this.looks.full;
    const wasted = this.state.fragmented(n, d);
    return 2 * wasted > idle ? this.looks.wasted(wasted / GPU_MILLI) : this.looks.idle;
  }

  /** @param {number} share @returns {Look} */
  lookOfUse(share) {
    return share === 0 ? this.looks.idle : this.looks.used(share);
  }

  /** @param {number} n @returns {Look} */
  lookOfModel(n) {
    const { model } = this.state.nodes;
    return model[n] === "" ? this.looks.idle : { colour: kind(Math.min(this.models.indexOf(model[n]), ownColours(this.models.length))) };
  }

  /** @param {number} n @param {string} colour @param {boolean} dashed */
  outline(n, colour, dashed = false) {
    const { x, y } = this.places[n];
    const height = Math.max(1, this.state.nodes.gpus[n]) * CELL;
    this.context.strokeStyle = colour;
    this.context.lineWidth = 2;
    this.context.setLineDash(dashed ? [3, 2] : []);
    this.context.strokeRect(x - 1, y - 1, CELL + 2, height + 1);
  }

  /** @param {number} node @param {number[]} marked */
  choose(node, marked = this.marked) {
    this.chosen = node;
    this.marked = marked;
    this.draw(null);
  }

  /** @param {MouseEvent} event @returns {number} the node, -1: none */
  nodeAt(event) {
    const { offsetX: x, offsetY: y } = event;
    const { gpus } = this.state.nodes;
    return this.order.find((n) => {
      const place = this.places[n];
      return x >= place.x - 1 && x < place.x + CELL + 1 && y >= place.y && y < place.y + Math.max(1, gpus[n]) * CELL;
    }) ?? -1;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const at = this.order.indexOf(this.chosen);
    this.onChoose(this.order[at < 0 ? 0 : Math.max(0, Math.min(this.order.length - 1, at + step))]);
  }

  /** @param {number} n @returns {string} its fragmented GPUs, "" if all that is idle is of use */
  describeWaste(n) {
    let wasted = 0;
    for (let d = 0; d < this.state.nodes.gpus[n]; d += 1) wasted += this.state.fragmented(n, d);
    const gpus = ((wasted * this.state.nodes.unit[n]) / GPU_MILLI).toFixed(2);
    return Number(gpus) ? `, ${gpus} fragmented` : "";
  }

  /** @param {number} n @returns {string} */
  describe(n) {
    if (n < 0) return "";
    const { nodes, counted } = this.state;
    const devices = this.state.gpu.subarray(this.state.first[n], this.state.first[n + 1]).reduce((sum, each) => sum + each, 0);
    const used = ((devices * nodes.unit[n]) / GPU_MILLI + counted[n]).toFixed(2);
    const all = nodes.gpus[n] * nodes.unit[n] + nodes.counted[n];
    const gpus = all ? `, ${used} of ${gpusOf(all, nodes.model[n])}${this.describeWaste(n)}` : "";
    const use = nodes.cpu[n] ? [`${Math.round((100 * this.state.cpu[n]) / nodes.cpu[n])} % of CPU${gpus}`] : [];
    const closed = this.state.closed?.(n);
    return `${nodes.name[n]}: ${[...use, ...(closed ? [closed] : [])].join("; ")}`;
  }
}

/** @param {number} count @param {string} model "" if it is not known @returns {string} */
export function gpusOf(count, model) {
  const shown = Number(count.toFixed(2));
  return `${shown} ${model}${model ? " " : ""}${shown === 1 ? "GPU" : "GPUs"}`;
}

/** What a pod requests. @param {number} count of GPUs @param {number} milli of each @returns {string} "" without GPUs */
export function requestedGpus(count, milli) {
  if (count === 0) return "";
  if (milli >= GPU_MILLI) return gpusOf(count, "");
  return `${count === 1 ? "" : `${count} × `}${milli / 10}\u00a0% of a GPU`;
}

/** The models of GPUs, the most frequent first. @param {MapState} state @returns {string[]} */
function modelsOf(state) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const model of state.nodes.model) if (model) counts.set(model, (counts.get(model) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1] || (one[0] < other[0] ? -1 : 1)).map(([model]) => model);
}
