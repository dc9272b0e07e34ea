// The cluster as the server's events say: a snapshot, then the nodes that changed.

import { fragmented } from "../shared/fragmentation.js";

/** @typedef {import("../shared/heatmap.js").NodeColumns} NodeColumns */
/** @typedef {import("../shared/fragmentation.js").TypicalPod} TypicalPod */
/**
 * @typedef {{at: number[], cpu: number[], memory: number[], pods: number[], gpu: number[][], counted: number[],
 *   sharing: number[][], state: string[]}} Use
 * @typedef {{layout: number, nodes: NodeColumns, use: Use, profile: TypicalPod[], warnings: string[]}} Snapshot
 */

export class LiveState {
  /** @param {Snapshot} snapshot */
  constructor(snapshot) {
    this.nodes = snapshot.nodes;
    this.profile = snapshot.profile;
    const { gpus } = this.nodes;
    this.first = new Int32Array(gpus.length + 1);
    gpus.forEach((count, n) => { this.first[n + 1] = this.first[n] + count; });
    this.gpu = new Int32Array(this.first[gpus.length]);
    this.sharing = new Int16Array(this.gpu.length);
    this.counted = new Float64Array(gpus.length);
    this.cpu = new Float64Array(gpus.length);
    this.pods = new Int32Array(gpus.length);
    /** @type {string[]} */
    this.state = gpus.map(() => "");
    this.apply(snapshot.use);
  }

  /** @param {Use} use @returns {Set<number>} the nodes that changed */
  apply(use) {
    use.at.forEach((n, i) => {
      this.cpu[n] = use.cpu[i];
      this.counted[n] = use.counted[i];
      this.pods[n] = use.pods[i];
      this.state[n] = use.state[i];
      this.gpu.set(use.gpu[i], this.first[n]);
      this.sharing.set(use.sharing[i], this.first[n]);
    });
    return new Set(use.at);
  }

  /** @param {number} n @returns {string} */
  closed(n) {
    return this.state[n];
  }

  /** @param {number} n @param {number} device @returns {number} */
  fragmented(n, device) {
    return fragmented(this, this.profile, n, device);
  }
}
