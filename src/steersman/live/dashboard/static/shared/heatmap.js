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

const [GAP, HEADING, MARGIN, BETWEEN] = [2, 20, 6, 18]; // BETWEEN: groups side by side
const [LEAST_CELL, MOST_HEIGHT, MOST_WIDTH] = [7, 24, 200];
/** Share of the window's height that a map takes at most, as long as cells need not be smaller than the least. */
const SHARE_OF_WINDOW = 0.5;
const FONT = "13px system-ui, sans-serif";
const HATCH = 7; // distance of lines

/** A cell, without the gaps around it, in CSS pixels. @typedef {{width: number, height: number}} CellSize */
/** @typedef {{heading: string, members: number[], rows: number, least: number}} Group `rows` of cells a node, `least` width in pixels */

/** The least size of a cell. */
export const CELL_SIZE = { width: LEAST_CELL, height: LEAST_CELL - 1 };

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

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {Look} look @param {CellSize} size */
export function drawCell(context, x, y, { colour, line }, { width, height } = CELL_SIZE) {
  context.fillStyle = colour;
  context.fillRect(x, y, width, height);
  if (line === undefined) return;
  context.fillStyle = line;
  for (let row = 0; row < height; row += 1) {
    for (let at = (height - 1 - row) % HATCH; at < width; at += HATCH) context.fillRect(x + at, y + row, Math.min(1.5, width - at), 1);
  }
}

/**
 * Lay groups out from left to right, in lines; a group that is wider than the map has several rows.
 * @param {Group[]} groups @param {number} width of the map @param {CellSize} cell
 * @returns {{places: {x: number, y: number, columns: number}[], height: number}} a place for each group
 */
function flow(groups, width, cell) {
  let [x, y, line] = [0, 0, 0];
  const places = groups.map(({ members, rows, least }) => {
    const columns = Math.max(1, Math.min(members.length, Math.floor((width + GAP) / (cell.width + GAP))));
    const needed = Math.max(least, columns * (cell.width + GAP) - GAP);
    if (x > 0 && x + needed > width) [x, y, line] = [0, y + line, 0];
    const place = { x, y, columns };
    x += needed + BETWEEN;
    line = Math.max(line, HEADING + Math.ceil(members.length / columns) * heightOf(rows, cell));
    return place;
  });
  return { places, height: y + line };
}

/** @param {number} rows @param {CellSize} cell @returns {number} the height of a row of nodes with so many cells each */
function heightOf(rows, cell) {
  return rows * (cell.height + 1) + MARGIN;
}

/**
 * The size of cells for a map: as high as the window allows, then as wide as they can be without another line.
 * @param {Group[]} groups @param {number} width of the map @returns {CellSize}
 */
function cellFor(groups, width) {
  const most = SHARE_OF_WINDOW * window.innerHeight;
  let size = MOST_HEIGHT;
  while (size > LEAST_CELL && flow(groups, width, { width: size, height: size - 1 }).height > most) size -= 1;
  const cell = { width: size, height: size - 1 };
  const { height } = flow(groups, width, cell);
  while (cell.width < Math.min(MOST_WIDTH, width) && flow(groups, width, { ...cell, width: cell.width + 1 }).height <= height) cell.width += 1;
  return cell;
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
    /** @type {{text: string, x: number, y: number}[]} */
    this.headings = [];
    /** @type {number[]} nodes in the order of the map */
    this.order = [];
    this.models = modelsOf(state);
    this.looks = looks();
    /** @type {CellSize} */
    this.cell = CELL_SIZE;
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
    this.context.font = FONT;
    const laid = sorted.map(([name, members]) => {
      const heading = `${name || `no ${nodes.groups[this.group] ? this.group : "GPU model"}`}: ${countOf(members.length, "node")}`;
      const least = Math.min(width, Math.ceil(this.context.measureText(heading).width));
      return { heading, members, rows: Math.max(1, ...members.map((n) => nodes.gpus[n])), least };
    });
    this.cell = cellFor(laid, width);
    const { places, height } = flow(laid, width, this.cell);
    this.places = new Array(values.length);
    this.order = laid.flatMap(({ members }) => members);
    this.headings = laid.map(({ heading }, g) => ({ text: heading, ...places[g] }));
    laid.forEach(({ members, rows }, g) => members.forEach((n, i) => {
      const { x, y, columns } = places[g];
      this.places[n] = {
        x: x + (i % columns) * (this.cell.width + GAP), y: y + HEADING + Math.floor(i / columns) * heightOf(rows, this.cell),
      };
    }));
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
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
      context.font = FONT;
      context.textBaseline = "top";
      for (const { text, x, y } of this.headings) context.fillText(text, x, y + 3);
      this.order.forEach((n) => this.drawNode(n));
    } else {
      changed.forEach((n) => this.drawNode(n));
    }
    this.marked.forEach((n, i) => this.outline(n, kind(5), i > 0));
    if (this.chosen >= 0) this.outline(this.chosen, this.text);
  }

  /** @param {number} n */
  drawNode(n) {
    const { context, state, cell } = this;
    const { x, y } = this.places[n];
    const devices = state.nodes.gpus[n];
    if (devices === 0) drawCell(context, x, y, this.mode === "model" ? this.lookOfModel(n) : this.lookOfUse(this.used(n)), cell);
    for (let d = 0; d < devices; d += 1) drawCell(context, x, y + d * (cell.height + 1), this.look(n, d), cell);
    if (state.closed?.(n)) {
      context.fillStyle = kind(5);
      context.fillRect(x + cell.width / 2 - 1, y, 2, this.nodeHeight(n) - 1);
    }
  }

  /** @param {number} n @returns {number} */
  nodeHeight(n) {
    return Math.max(1, this.state.nodes.gpus[n]) * (this.cell.height + 1);
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
    this.context.strokeStyle = colour;
    this.context.lineWidth = 2;
    this.context.setLineDash(dashed ? [3, 2] : []);
    this.context.strokeRect(x - 1, y - 1, this.cell.width + 2, this.nodeHeight(n) + 1);
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
    return this.order.find((n) => {
      const place = this.places[n];
      return x >= place.x - 1 && x < place.x + this.cell.width + 1 && y >= place.y && y < place.y + this.nodeHeight(n);
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
