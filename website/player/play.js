// The page: what a visitor chooses, a clock, two maps and two curves. A worker computes the runs, see worker.js.
"use strict";

/** @typedef {{policy: string, node: Int32Array, devices: BigInt64Array, used: Float64Array, percent: number}} Run by arrival: its node, -1 if it fits nowhere, a mask of its GPUs, and GPU milli allocated then */
/** @typedef {{name: string, seed: number, nodes: {name: string, gpus: number, model: string}[], capacity: number, demand: Float64Array, milli: Uint16Array, runs: Run[]}} Played */

const { PLAYED, WORKER } = /** @type {any} */ (window);
const WHOLE = 1000;
const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const root = byId("play");
const [MAPS, CURVES] = ["#maps canvas", "#curves canvas"].map((some) => /** @type {HTMLCanvasElement[]} */ ([...document.querySelectorAll(some)]));
const colour = (/** @type {string} */ name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const counted = (/** @type {number} */ value, digits = 0) => Math.abs(value).toLocaleString("en-US", { maximumFractionDigits: digits });

/** @param {HTMLCanvasElement} canvas @returns {{context: CanvasRenderingContext2D, width: number, height: number}} empty, as sharp as the screen */
function fitted(canvas) {
  const [ratio, width, height] = [window.devicePixelRatio || 1, canvas.clientWidth, canvas.clientHeight];
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

/** The nodes of a run as blocks of squares. */
class NodeMap {
  /** @param {HTMLCanvasElement} canvas @param {Played} played @param {Run} run */
  constructor(canvas, played, run) {
    this.canvas = canvas;
    this.played = played;
    this.run = run;
    /** By node its first GPU. */
    this.first = [0];
    for (const { gpus } of played.nodes) this.first.push(this.first[this.first.length - 1] + gpus);
    const gpus = this.first[played.nodes.length];
    this.x = new Uint16Array(gpus);
    this.y = new Uint16Array(gpus);
    this.used = new Uint16Array(gpus);
    this.at = 0;
    this.size = 0;
    this.colours = [""];
    this.context = fitted(canvas).context;
    this.layOut();
  }

  layOut() {
    const { canvas, played: { nodes }, first } = this;
    const order = nodes.map((_, n) => n).filter((n) => nodes[n].gpus);
    order.sort((a, b) => nodes[b].gpus - nodes[a].gpus || (nodes[a].model < nodes[b].model ? -1 : 1));
    const width = canvas.clientWidth;
    // The largest squares whose rows, of two GPUs and a gap, stay below the height.
    for (this.size = 16; this.size > 2; this.size -= 1) if (this.place(order, width) <= 460) break;
    canvas.style.height = `${this.place(order, width)}px`;
    this.context = fitted(canvas).context;
    this.used.fill(0);
    this.context.fillStyle = colour("node");
    const gap = this.size > 3 ? 1 : 0;
    for (const n of order) {
      const [x, y, columns] = [this.x[first[n]], this.y[first[n]], Math.ceil(nodes[n].gpus / 2)];
      this.context.fillRect(x - gap, y - gap, columns * this.size + gap, 2 * this.size + gap);
    }
    this.colours = ["idle", "shared", "full"].map(colour);
    for (let gpu = 0; gpu < this.used.length; gpu += 1) this.draw(gpu);
    this.at = 0;
  }

  /** Place GPUs of this size. @param {number[]} order @param {number} width @returns {number} the height */
  place(order, width) {
    const { size, first, played: { nodes } } = this;
    const gap = size > 3 ? 3 : 2;
    let [x, y] = [1, 1];
    for (const n of order) {
      const columns = Math.ceil(nodes[n].gpus / 2);
      if (x + columns * size > width) [x, y] = [1, y + 2 * size + gap];
      for (let d = 0; d < nodes[n].gpus; d += 1) {
        this.x[first[n] + d] = x + (d % columns) * size;
        this.y[first[n] + d] = y + Math.floor(d / columns) * size;
      }
      x += columns * size + gap;
    }
    return y + 2 * size + gap;
  }

  /** @param {number} gpu */
  draw(gpu) {
    const { context, size, used } = this;
    const state = Number(used[gpu] > 0) + Number(used[gpu] >= WHOLE);
    const side = size > 3 ? size - 1 : size;
    const inner = state ? side : Math.max(Math.min(2, side), Math.round(side / 3));
    const edge = Math.floor((side - inner) / 2);
    context.fillStyle = this.colours[state];
    context.fillRect(this.x[gpu] + edge, this.y[gpu] + edge, inner, inner);
  }

  /** Show the cluster after so many arrivals. @param {number} count */
  show(count) {
    if (count < this.at) this.layOut();
    const { run, played, first, used } = this;
    for (; this.at < count; this.at += 1) {
      const n = run.node[this.at];
      for (let mask = n < 0 ? 0n : run.devices[this.at], d = 0; mask; mask >>= 1n, d += 1) {
        if (!(mask & 1n)) continue;
        used[first[n] + d] += played.milli[this.at];
        this.draw(first[n] + d);
      }
    }
  }
}

/** @typedef {{values: (a: number) => number, colour: string, dash: number[]}} Line its values by arrival */

/** @param {number} span @param {number} most @returns {number} the step between at most so many round numbers */
function stepOf(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return /** @type {number} */ ([1, 2, 5, 10].map((each) => each * power).find((step) => span / step <= most));
}

/**
 * Lines over the demand that has arrived. @param {HTMLCanvasElement} canvas @param {Played} played
 * @param {{low: number, high: number, unit: string}} axis @param {Line[]} lines @param {number} count of arrivals
 */
function drawCurve(canvas, played, { low, high, unit }, lines, count) {
  const { context, width, height } = fitted(canvas);
  const [left, right, top, bottom] = [52, 18, 8, 38];
  const share = (/** @type {number} */ a) => (100 * played.demand[a]) / played.capacity;
  const last = share(played.demand.length - 1);
  const x = (/** @type {number} */ percent) => left + (percent / last) * (width - left - right);
  const y = (/** @type {number} */ value) => height - bottom - ((value - low) / (high - low)) * (height - top - bottom);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = getComputedStyle(document.body).color;
  context.strokeStyle = colour("idle");
  context.textAlign = "right";
  context.textBaseline = "middle";
  const step = stepOf(high - low, 5);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    context.fillText(`${value < 0 ? "−" : ""}${counted(value, step < 1 ? 1 : 0)}${unit}`, left - 6, y(value));
    context.globalAlpha = value === 0 ? 1 : 0.25;
    context.beginPath();
    context.moveTo(left, y(value));
    context.lineTo(width - right, y(value));
    context.stroke();
    context.globalAlpha = 1;
  }
  context.textAlign = "center";
  for (let percent = 0; percent <= last; percent += stepOf(last, width / 60)) context.fillText(`${percent} %`, x(percent), height - bottom + 12);
  context.fillText("GPU demand that has arrived, in % of all GPUs", (left + width - right) / 2, height - 8);
  context.lineWidth = 2;
  for (const line of lines) {
    context.strokeStyle = line.colour;
    context.setLineDash(line.dash);
    context.beginPath();
    const stride = Math.max(1, Math.floor(count / (2 * width)));
    for (let a = 0; a < count; a += stride) context.lineTo(x(share(a)), y(line.values(a)));
    if (count) context.lineTo(x(share(count - 1)), y(line.values(count - 1)));
    context.stroke();
  }
}

/** The run that is shown, and how far it is. */
class Show {
  /** @param {Played} played */
  constructor(played) {
    this.played = played;
    this.all = played.demand.length;
    this.at = 0;
    this.startedAt = 0;
    this.playing = false;
    this.maps = played.runs.map((run, i) => new NodeMap(MAPS[i], played, run));
    const [first, second] = played.runs.map(({ used }) => used);
    this.differences = second.map((milli, a) => (milli - first[a]) / WHOLE);
    this.low = this.differences.reduce((least, each) => Math.min(least, each), 0);
    this.high = this.differences.reduce((most, each) => Math.max(most, each), 1);
    this.refused = played.runs.map(({ node }) => {
      let count = 0;
      return Uint32Array.from(node, (n) => (count += Number(n < 0)));
    });
    byId("time").max = this.all;
    byId("toggle").disabled = false;
    document.querySelectorAll("#maps b").forEach((name, i) => { name.textContent = played.runs[i].policy; });
    byId("gain").textContent = `GPUs allocated under ${played.runs[1].policy} minus those under ${played.runs[0].policy}`;
  }

  /** @param {boolean} playing */
  play(playing) {
    if (playing && this.at === this.all) this.show(0);
    this.playing = playing;
    this.startedAt = performance.now() - (this.at / this.all) * 1000 * byId("seconds").value;
    byId("toggle").textContent = playing ? "Pause" : "Play";
    if (playing) requestAnimationFrame((now) => this.frame(now));
  }

  /** @param {number} now */
  frame(now) {
    if (!this.playing || shown !== this) return;
    this.show(Math.min(this.all, Math.max(0, Math.floor(((now - this.startedAt) / 1000 / byId("seconds").value) * this.all))));
    if (this.at < this.all) requestAnimationFrame((next) => this.frame(next));
    else this.play(false);
  }

  /** @param {number} at number of arrivals */
  show(at) {
    this.at = at;
    const { played, maps, all, differences, low, high } = this;
    const { runs, capacity, demand, milli } = played;
    for (const map of maps) map.show(at);
    const digits = capacity < 100 * WHOLE ? 1 : 0;
    const gpus = runs.map(({ used }) => (at ? used[at - 1] / WHOLE : 0));
    document.querySelectorAll("#maps span").forEach((status, i) => {
      const refused = at ? this.refused[i][at - 1] : 0;
      status.textContent = `${counted(gpus[i], digits)} of ${counted(capacity / WHOLE)} GPUs allocated, ${counted(refused)} pods fit nowhere`;
      MAPS[i].setAttribute("aria-label", `GPUs by node under ${runs[i].policy}: ${status.textContent}`);
    });
    const difference = counted(gpus[1] - gpus[0], digits);
    byId("difference").textContent = `${difference === "0" ? "±" : gpus[1] > gpus[0] ? "+" : "−"}${difference}`;
    byId("words").textContent = `GPUs allocated under ${runs[1].policy}, compared with ${runs[0].policy}, on ${played.name}`;
    byId("time").value = at;
    byId("now").textContent = `${counted(at)} of ${counted(all)} pods, ${counted(at ? (100 * demand[at - 1]) / capacity : 0)} % of demand`;
    const looks = [{ colour: colour("first"), dash: [] }, { colour: colour("second"), dash: [6, 4] }];
    const lines = runs.map(({ used }, i) => ({ ...looks[i], values: (/** @type {number} */ a) => (100 * used[a]) / capacity }));
    drawCurve(CURVES[0], played, { low: 0, high: 100, unit: " %" }, lines, at);
    drawCurve(CURVES[1], played, { low, high, unit: "" }, [{ colour: colour("second"), dash: [], values: (a) => differences[a] }], at);
    const points = runs[1].percent - runs[0].percent;
    byId("result").textContent = at < all ? "" : `At the end, over the last percent of demand: ${runs.map(({ policy, percent }) => `${percent.toFixed(2)} % of GPUs allocated under ${policy}`).join(", ")}. `
      + `That is ${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(2)} points, or ${counted(points * capacity / WHOLE / 100, digits)} of ${counted(capacity / WHOLE)} GPUs.`;
  }
}

/** @type {Show | null} */
let shown = null;
/** The visitor's own tables, null: openb. @type {{nodes: {name: string, bytes: ArrayBuffer}, pods: {name: string, bytes: ArrayBuffer}} | null} */
let files = null;
let asked = 0;
/** The browser's workers: in a page from a file the search puts others in their place, but not in a new frame. @returns {typeof Worker} */
function browserWorker() {
  if (Worker !== /** @type {any} */ (window).IFrameWorker) return Worker;
  const frame = document.createElement("iframe");
  frame.hidden = true;
  document.body.append(frame);
  return /** @type {any} */ (frame.contentWindow).Worker;
}

const worker = new (browserWorker())(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" })));
worker.onerror = (/** @type {ErrorEvent} */ { message }) => {
  byId("problem").hidden = false;
  byId("problem").textContent = message;
};

/** Compute the runs that are chosen, then play them. */
function ask() {
  if (!byId("choice").reportValidity()) return;
  asked += 1;
  byId("now").textContent = "Computing…";
  const policies = [byId("first").value, byId("second").value];
  worker.postMessage({ number: asked, data: asked === 1 ? PLAYED : null, files, seed: Number(byId("seed").value), policies });
}

worker.onmessage = (/** @type {MessageEvent} */ { data: { number, played, error } }) => {
  if (number !== asked) return;
  for (const id of ["problem", "wrong"]) {
    byId(id).hidden = !error || (files !== null) !== (id === "wrong");
    byId(id).textContent = error ?? "";
  }
  if (error) {
    shown?.show(shown.at);
    return;
  }
  shown = new Show(played);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  shown.show(still ? shown.all : 0);
  if (!still) shown.play(true);
  if (files !== null) root.scrollIntoView();
};

/** Offer the policies; those with tables of openb alone have none for other files. */
function offer() {
  for (const id of ["first", "second"]) {
    const { value } = byId(id);
    const names = Object.keys(PLAYED.policies).filter((name) => files === null || !PLAYED.policies[name].learned);
    byId(id).replaceChildren(...names.map((name) => new Option(name, name)));
    byId(id).value = names.includes(value) ? value : { first: "kube-default", second: "fgd" }[id];
  }
}

async function readFiles() {
  const [nodes, pods] = ["nodes", "pods"].map((id) => byId(id).files[0]);
  if (!nodes || !pods) return;
  const read = async (/** @type {File} */ file) => ({ name: file.name, bytes: await file.arrayBuffer() });
  const contents = { nodes: await read(nodes), pods: await read(pods) };
  if (byId("nodes").files[0] !== nodes || byId("pods").files[0] !== pods) return; // others were chosen meanwhile
  files = contents;
  byId("openb").hidden = false;
  offer();
  ask();
}

function redraw() {
  if (shown === null) return;
  for (const map of shown.maps) map.layOut();
  shown.show(shown.at);
}

offer();
for (const id of ["first", "second", "seed"]) byId(id).addEventListener("change", ask);
byId("choice").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
byId("seconds").addEventListener("change", () => shown?.play(shown.playing));
byId("toggle").addEventListener("click", () => shown?.play(!shown.playing));
byId("time").addEventListener("input", () => {
  const at = Number(byId("time").value);
  shown?.play(false);
  shown?.show(at);
});
for (const id of ["nodes", "pods"]) byId(id).addEventListener("change", readFiles);
byId("openb").addEventListener("click", () => {
  files = null;
  for (const id of ["nodes", "pods"]) byId(id).value = "";
  byId("openb").hidden = true;
  offer();
  ask();
});
new ResizeObserver(redraw).observe(byId("maps"));
new MutationObserver(redraw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
ask();
