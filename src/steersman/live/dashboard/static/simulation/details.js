// What is known of a node, and why a policy decided as it did. All text is set as text: names come from clusters.

import { countOf, element, table } from "../shared/elements.js";
import { explanationParts } from "../shared/explanation.js";
import { GPU_MILLI, gpusOf, requestedGpus } from "../shared/heatmap.js";
import { BOUND, devicesOf } from "./replay.js";

/** @typedef {import("./replay.js").ClusterState} ClusterState */
/** @typedef {import("../shared/explanation.js").Explanation} Explanation */

/**
 * @param {ClusterState} state @param {number} n @param {(event: number) => void} onPod @returns {HTMLElement}
 */
export function nodeCard(state, n, onPod) {
  const { nodes, pods } = state.replay;
  const events = state.running.get(n) ?? [];
  const rows = events.map((e) => {
    const pod = state.run.pod[e];
    const open = element("button", { type: "button", class: "link" }, pods.name[pod]);
    open.addEventListener("click", () => onPod(e));
    const gpus = devicesOf(state.run, e).map((device) => `${device}${pods.milli[pod] < GPU_MILLI ? ` (${pods.milli[pod] / 10} %)` : ""}`);
    const counted = pods.counted[pod] ? gpusOf(pods.counted[pod], "") : "";
    return [open, (pods.cpu[pod] / 1000).toString(), gpus.join(", ") || counted];
  });
  const all = nodes.gpus[n] * nodes.unit[n] + nodes.counted[n];
  const gpus = all ? `, ${gpusOf(all, nodes.model[n])}` : "";
  return element("article", { class: "card" },
    element("h2", {}, `${nodes.name[n]} under ${state.run.policy}`),
    element("p", {}, `${(state.cpu[n] / 1000).toFixed(1)} of ${(nodes.cpu[n] / 1000).toFixed(1)} CPU, `
      + `${(state.memory[n] / 1024).toFixed(1)} of ${(nodes.memory[n] / 1024).toFixed(1)} GiB${gpus}; ${countOf(events.length, "pod")}`),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Pods on ${nodes.name[n]}` },
      table(["pod (choose one for the reasons)", "CPU", "GPUs"], rows, [1])));
}

/**
 * @param {ClusterState} state @param {number} e the decision @param {Explanation | string} explained or the problem
 * @returns {HTMLElement}
 */
export function decisionCard(state, e, explained) {
  const { nodes, pods } = state.replay;
  const { run } = state;
  const pod = run.pod[e];
  const gpus = requestedGpus(pods.gpus[pod], pods.milli[pod]);
  const taken = run.outcome[e] === BOUND ? `was placed on ${nodes.name[run.node[e]]}` : "was placed nowhere";
  const card = element("article", { class: "card" },
    element("h2", {}, `${run.policy}: ${pods.name[pod]} ${taken}`),
    element("p", {}, `Event ${e}: it requests ${pods.cpu[pod] / 1000} CPU, ${(pods.memory[pod] / 1024).toFixed(1)} GiB${gpus && `, ${gpus}`}.`));
  if (run.reasons[run.reason[e]]) card.append(element("p", {}, run.reasons[run.reason[e]]));
  card.append(...explanationParts(explained));
  return card;
}
