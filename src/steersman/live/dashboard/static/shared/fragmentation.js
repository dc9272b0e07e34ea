// Idle GPU that is of no use to the pods that typically come (Weng et al., ATC 2023).

import { GPU_MILLI } from "./heatmap.js";

/** @typedef {import("./heatmap.js").NodeColumns} NodeColumns */
/** @typedef {{cpu_milli: number, gpu_count: number, gpu_milli: number, gpu_models: string[], share: number}} TypicalPod */

/**
 * Idle milli of a device that a pod drawn from the profile cannot use, in expectation.
 * @param {{nodes: NodeColumns, first: Int32Array, gpu: Int32Array, cpu: Float64Array}} state
 * @param {TypicalPod[]} profile @param {number} n @param {number} device @returns {number}
 */
export function fragmented(state, profile, n, device) {
  const { nodes, first, gpu } = state;
  const idle = GPU_MILLI - gpu[first[n] + device];
  if (idle <= 0) return 0; // below zero: the node offers less than runs there
  const cpu = nodes.cpu[n] - state.cpu[n];
  let lost = 0;
  for (const kind of profile) {
    const usable = kind.gpu_count > 0 && (kind.gpu_models.length === 0 || kind.gpu_models.includes(nodes.model[n])) && cpu >= kind.cpu_milli;
    if (usable) {
      let fitting = 0;
      for (let d = first[n]; d < first[n + 1]; d += 1) fitting += GPU_MILLI - gpu[d] >= kind.gpu_milli ? 1 : 0;
      lost += kind.share * (fitting >= kind.gpu_count && idle >= kind.gpu_milli ? 0 : idle);
    } else {
      lost += kind.share * idle;
    }
  }
  return lost;
}
