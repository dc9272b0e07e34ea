// A node with its pods, and a pod with its reasons. All text is set as text: names come from clusters.

import { countOf, element, lasts, table } from "../shared/elements.js";
import { explanationParts } from "../shared/explanation.js";
import { gpusOf, requestedGpus } from "../shared/heatmap.js";

/** @typedef {import("../shared/explanation.js").Explanation} Explanation */
/**
 * @typedef {{name: string, scheduler: string, node: string, cpu: number, memory: number, gpus: number, milli: number,
 *   devices: number[], since: number | null, waited: number | null, reason: string, rules: Record<string, boolean>}} PodRow
 * @typedef {{name: string, state: string, problem: string, model: string, gpus: number, usedGpu: number, cpu: number, memory: number,
 *   usedCpu: number, usedMemory: number, labels: Record<string, string>, pods: PodRow[], leftOut: number}} NodeDetails
 */

/** @param {string} text @param {() => void} onClick @returns {HTMLElement} */
export function link(text, onClick) {
  const button = element("button", { type: "button", class: "link" }, text);
  button.addEventListener("click", onClick);
  return button;
}

/** @param {NodeDetails} node @param {(pod: string) => void} onPod @returns {HTMLElement} */
export function nodeCard(node, onPod) {
  const gpus = node.gpus ? `, ${node.usedGpu / 1000} of ${gpusOf(node.gpus, node.model)}` : "";
  const resources = node.cpu ? `${(node.usedCpu / 1000).toFixed(1)} of ${(node.cpu / 1000).toFixed(1)} CPU, `
    + `${(node.usedMemory / 1024).toFixed(1)} of ${(node.memory / 1024).toFixed(1)} GiB${gpus}; ` : "";
  const rows = node.pods.map((pod) => [link(pod.name, () => onPod(pod.name)), (pod.cpu / 1000).toString(), devices(pod)]);
  const more = node.leftOut ? `; ${node.leftOut} more are not listed` : "";
  return element("article", { class: "card" },
    element("h2", {}, node.state ? `${node.name} (${node.state})` : node.name),
    ...(node.problem ? [element("p", { class: "reason" }, node.problem)] : []),
    element("p", {}, `${resources}${countOf(node.pods.length + node.leftOut, "pod")}${more}`),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Pods on ${node.name}` },
      table(["pod (choose one for the reasons)", "CPU", "GPUs"], rows, [1])));
}

/**
 * @param {PodRow} pod @param {Explanation | string} explained or what is to be said instead of it
 * @param {string} policy that explains @param {string[]} policies @param {(policy: string) => void} onPolicy
 * @param {(node: string) => void} onNode @returns {HTMLElement}
 */
export function podCard(pod, explained, policy, policies, onPolicy, onNode) {
  const gpus = requestedGpus(pod.gpus, pod.milli);
  const card = element("article", { class: "card" },
    element("h2", {}, pod.node ? pod.name : `${pod.name} waits`),
    element("p", {}, `${pod.scheduler}: ${pod.cpu / 1000} CPU, ${(pod.memory / 1024).toFixed(1)} GiB${gpus && `, ${gpus}`}`));
  if (pod.node) {
    card.append(element("p", {}, "On ", link(pod.node, () => onNode(pod.node)), pod.devices.length ? `, GPUs ${devices(pod)}` : "",
      pod.waited === null ? "" : `; it waited ${pod.waited.toFixed(2)} s`));
  } else {
    const since = new Date((pod.since ?? 0) * 1000);
    // Screen readers are not told of each second.
    const lasting = element("span", { "aria-live": "off" }, `${lasts(Date.now() / 1000 - (pod.since ?? 0))}.`);
    card.append(element("p", {}, `Since ${since.toLocaleTimeString([], { hour12: false })}: `, lasting),
      element("p", { class: "reason" }, pod.reason ? `${pod.scheduler} says: ${pod.reason}` : `${pod.scheduler} has not said why yet.`));
  }
  const rules = Object.entries(pod.rules);
  if (rules.length) {
    card.append(element("p", {}, rules.map(([rule, agrees]) => `${rule} ${agrees ? "agrees" : "would have gone elsewhere"}`).join("; ")));
  }
  const choice = element("select", { "aria-label": "Policy that explains" },
    ...policies.map((name) => element("option", name === policy ? { value: name, selected: "" } : { value: name }, name)));
  choice.addEventListener("change", () => onPolicy(/** @type {HTMLSelectElement} */ (choice).value));
  card.append(element("p", {}, "Where it would be placed if it still waited, by ", choice), ...explanationParts(explained));
  return card;
}

/** @param {PodRow} pod @returns {string} the GPU devices that a bound pod holds, or how many counted GPUs */
function devices(pod) {
  if (!pod.devices.length) return pod.gpus ? gpusOf(pod.gpus, "") : "";
  return pod.devices.map((device) => `${device}${pod.milli < 1000 ? ` (${pod.milli / 10} %)` : ""}`).join(", ");
}
