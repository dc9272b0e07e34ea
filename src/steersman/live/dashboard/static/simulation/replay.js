// The cluster after any event of a run: events are applied forward, and a jump back starts from a stored copy.

import { fragmented } from "../shared/fragmentation.js";
import { GPU_MILLI } from "../shared/heatmap.js";

/** @typedef {import("../shared/heatmap.js").NodeColumns} NodeColumns */
/** @typedef {import("../shared/fragmentation.js").TypicalPod} TypicalPod */
/**
 * @typedef {{name: string[], cpu: number[], memory: number[], gpus: number[], milli: number[],
 *   counted: number[]}} PodColumns
 * @typedef {{policy: string, look: import("../shared/colours.js").PolicyLook, time: number[], pod: number[], node: number[], devices: string[], outcome: number[],
 *   reason: number[], reasons: string[], gpu: (number | null)[], cpu: (number | null)[],
 *   fragmentation: (number | null)[]}} Run
 * @typedef {{workload: string, protocol: string, seed: number, nodes: NodeColumns, pods: PodColumns, warnings: string[],
 *   profile: TypicalPod[], runs: Run[], sources: number[], versions: string[]}} Replay
 */

export const [BOUND, FAILED, WAITING, FINISHED, EVICTED] = [0, 1, 2, 3, 4];
const COPY_EVENTS = 1000;

/** What is on the nodes. `first` has the position of each node's first device in `gpu` and `sharing`. */
export class ClusterState {
  /** @param {Replay} replay @param {Run} run */
  constructor(replay, run) {
    this.replay = replay;
    this.nodes = replay.nodes;
    this.run = run;
    const { gpus } = replay.nodes;
    this.first = new Int32Array(gpus.length + 1);
    gpus.forEach((count, n) => { this.first[n + 1] = this.first[n] + count; });
    const devices = this.first[gpus.length];
    this.gpu = new Int32Array(devices);
    this.sharing = new Int16Array(devices);
    this.counted = new Float64Array(gpus.length);
    this.cpu = new Float64Array(gpus.length);
    this.memory = new Float64Array(gpus.length);
    /** @type {Map<number, number[]>} events of the pods that run on a node */
    this.running = new Map();
    /** Number of events that were applied. */
    this.applied = 0;
    /** @type {{applied: number, gpu: Int32Array, sharing: Int16Array, counted: Float64Array, cpu: Float64Array,
     *   memory: Float64Array, running: Map<number, number[]>}[]} */
    this.copies = [];
    this.keep();
  }

  /** Apply or take back events until so many are applied; return the nodes that changed, null if all may have. */
  /** @param {number} count @returns {Set<number> | null} */
  seek(count) {
    /** @type {Set<number> | null} */
    let changed = new Set();
    if (count < this.applied) {
      this.restore(Math.min(Math.floor(count / COPY_EVENTS), this.copies.length - 1));
      changed = null;
    }
    while (this.applied < count) {
      const node = this.apply(this.applied);
      this.applied += 1;
      if (node >= 0 && changed !== null) changed.add(node);
      if (this.applied % COPY_EVENTS === 0 && this.copies.length === this.applied / COPY_EVENTS) this.keep();
    }
    return changed;
  }

  /** @param {number} e @returns {number} the node that changed, -1: none */
  apply(e) {
    const { run } = this;
    const outcome = run.outcome[e];
    const n = run.node[e];
    if (n < 0 || (outcome !== BOUND && outcome !== FINISHED && outcome !== EVICTED)) return -1;
    const there = this.running.get(n) ?? [];
    if (outcome === BOUND) {
      this.running.set(n, [...there, e]);
      this.take(n, e, 1);
    } else {
      const bound = there.findIndex((each) => run.pod[each] === run.pod[e]);
      if (bound >= 0) {
        this.take(n, there[bound], -1);
        this.running.set(n, there.filter((_, i) => i !== bound));
      }
    }
    return n;
  }

  /** @param {number} n @param {number} e the event in which the pod was bound @param {number} sign */
  take(n, e, sign) {
    const { pods } = this.replay;
    const pod = this.run.pod[e];
    this.cpu[n] += sign * pods.cpu[pod];
    this.memory[n] += sign * pods.memory[pod];
    const devices = devicesOf(this.run, e);
    // A running pod may have fewer devices than it requests, and counts beyond them where its node offers less by now.
    if (devices.length === 0) this.counted[n] += sign * pods.counted[pod];
    else this.counted[n] += sign * (pods.gpus[pod] - devices.length);
    for (const device of devices) {
      this.gpu[this.first[n] + device] += sign * pods.milli[pod];
      this.sharing[this.first[n] + device] += sign;
    }
  }

  keep() {
    const { applied, gpu, sharing, counted, cpu, memory, running } = this;
    this.copies.push({
      applied, gpu: gpu.slice(), sharing: sharing.slice(), counted: counted.slice(), cpu: cpu.slice(), memory: memory.slice(),
      running: new Map(running),
    });
  }

  /** @param {number} index */
  restore(index) {
    const copy = this.copies[index];
    this.applied = copy.applied;
    this.gpu.set(copy.gpu);
    this.sharing.set(copy.sharing);
    this.counted.set(copy.counted);
    this.cpu.set(copy.cpu);
    this.memory.set(copy.memory);
    this.running = new Map(copy.running);
  }

  /** GPUs that pods have. @returns {number} */
  gpusAllocated() {
    const { gpus, unit } = this.nodes;
    let sum = 0;
    for (let n = 0; n < gpus.length; n += 1) {
      let milli = 0;
      for (let d = this.first[n]; d < this.first[n + 1]; d += 1) milli += this.gpu[d];
      sum += (milli * unit[n]) / GPU_MILLI + this.counted[n];
    }
    return sum;
  }

  /** Cores that pods request. @returns {number} */
  coresRequested() {
    return this.cpu.reduce((sum, each) => sum + each, 0) / 1000;
  }

  /** See `shared/fragmentation.js`. @param {number} n @param {number} device @returns {number} */
  fragmented(n, device) {
    return fragmented(this, this.replay.profile, n, device);
  }
}

/** @param {Run} run @param {number} e @returns {number[]} */
export function devicesOf(run, e) {
  return run.devices[e] === "" ? [] : run.devices[e].split("-").map(Number);
}

/**
 * Pods that fit nowhere, by the number of events that were applied: how many were refused so far, and how many wait then.
 * @param {Run} run @returns {{refused: Int32Array, waiting: Int32Array}}
 */
export function unplacedCounts(run) {
  const [refused, waiting] = [1, 2].map(() => new Int32Array(run.outcome.length + 1));
  /** @type {Map<number, number>} how often a pod waits */
  const queued = new Map();
  let length = 0;
  run.outcome.forEach((outcome, e) => {
    const pod = run.pod[e];
    const times = queued.get(pod) ?? 0;
    const change = outcome === WAITING || outcome === EVICTED ? 1 : outcome === BOUND && times > 0 ? -1 : 0;
    queued.set(pod, times + change);
    length += change;
    refused[e + 1] = refused[e] + (outcome === FAILED ? 1 : 0);
    waiting[e + 1] = length;
  });
  return { refused, waiting };
}

/** Number of arrivals up to each event, with it. @param {Run} run @returns {Int32Array} */
export function arrivalCounts(run) {
  const counts = new Int32Array(run.outcome.length);
  /** @type {Map<number, number>} how often a pod waits */
  const waiting = new Map();
  let arrived = 0;
  run.outcome.forEach((outcome, e) => {
    const queued = waiting.get(run.pod[e]) ?? 0;
    if (outcome === WAITING || outcome === EVICTED) waiting.set(run.pod[e], queued + 1);
    if (outcome === BOUND && queued > 0) waiting.set(run.pod[e], queued - 1);
    else if (outcome !== FINISHED && outcome !== EVICTED) arrived += 1;
    counts[e] = arrived;
  });
  return counts;
}

/**
 * Number of events of a run up to a time, without those from a further arrival on: many pods may arrive at one time.
 * @param {Run} run @param {Int32Array} counts see `arrivalCounts` @param {number} time @param {number} arrivals
 * @returns {number}
 */
export function eventsUntil(run, counts, time, arrivals) {
  let [low, high] = [0, run.time.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.time[middle] <= time && counts[middle] <= arrivals) low = middle + 1; else high = middle;
  }
  return low;
}

/**
 * Decisions on the same arrival in which two runs took different nodes, in the order of the first run.
 * @param {Run} a @param {Run} b @returns {{a: number, b: number}[]} the events of each
 */
export function differences(a, b) {
  const other = decisions(b);
  const found = [];
  for (const [arrival, event] of decisions(a)) {
    const there = other.get(arrival);
    if (there !== undefined && a.node[event] !== b.node[there]) found.push({ a: event, b: there });
  }
  return found;
}

/** Event that bound or dropped each arrival. @param {Run} run @returns {Map<string, number>} */
function decisions(run) {
  /** @type {Map<number, number>} */
  const seen = new Map();
  /** @type {Map<string, number>} */
  const result = new Map();
  run.outcome.forEach((outcome, e) => {
    if (outcome !== BOUND && outcome !== FAILED) return;
    const number = seen.get(run.pod[e]) ?? 0;
    seen.set(run.pod[e], number + 1);
    result.set(`${run.pod[e]}/${number}`, e);
  });
  return result;
}
