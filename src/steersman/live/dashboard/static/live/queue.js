// When the waiting pods start: asked for on demand, since the server simulates many futures for it.

import { ask, byId, countOf, element, lasts, table } from "../shared/elements.js";
import { link } from "./cards.js";

/**
 * @typedef {{pod: string, priority: number, waited: number, needs: string, p10: number | null, p50: number | null, p90: number | null,
 *   never: number, impossible: string}} ExpectedStart
 * @typedef {{policy: string, order: string, horizon: number, rollouts: number, pods: ExpectedStart[], assumptions: string[]}} Prediction
 */

const ORDERS = ["age", "wfp3:easy", "shortest", "smallest", "fcfs", "easy", "fair"];
const LISTED = 100;

export class QueueTable {
  /** @param {string[]} policies @param {(pod: string) => void} onPod */
  constructor(policies, onPod) {
    this.onPod = onPod;
    for (const [id, names] of /** @type {[string, string[]][]} */ ([["queue-policy", policies], ["queue-order", ORDERS]])) {
      byId(id).replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    }
    byId("predict").addEventListener("click", () => this.predict());
  }

  async predict() {
    byId("predict").disabled = true;
    byId("queue").replaceChildren(element("p", {}, "Simulating what comes…"));
    const question = new URLSearchParams({ policy: byId("queue-policy").value, order: byId("queue-order").value });
    try {
      this.show(await ask(`/api/live/queue?${question}`));
    } catch (problem) {
      byId("queue").replaceChildren(element("p", {}, problem instanceof Error ? problem.message : String(problem)));
    }
    byId("predict").disabled = false;
  }

  /** @param {Prediction} prediction */
  show({ policy, order, horizon, rollouts, pods, assumptions }) {
    if (!pods.length) {
      byId("queue").replaceChildren(element("p", {}, "No pod waits."));
      return;
    }
    const when = (/** @type {number | null} */ seconds) => (seconds === null ? `over ${lasts(horizon)}` : lasts(seconds));
    const rows = pods.slice(0, LISTED).map((pod) => [link(pod.pod, () => this.onPod(pod.pod)), pod.needs, pod.priority.toString(), lasts(pod.waited),
      ...(pod.impossible ? [element("span", { class: "reason" }, `never: ${pod.impossible}`), "", ""] : [pod.p10, pod.p50, pod.p90].map(when))]);
    const more = pods.length > LISTED ? `; ${pods.length - LISTED} more are not listed` : "";
    byId("queue").replaceChildren(
      element("p", {}, `${countOf(pods.length, "pod")} by ${countOf(rollouts, "simulated future")} under ${policy}, order ${order}, the next one first${more}.`),
      table(["pod", "requests", "priority", "has waited", "10 %: within", "median", "90 %: within"], rows, [2, 3, 4, 5, 6]),
      ...assumptions.map((text) => element("p", {}, `Assumed: ${text}.`)));
  }
}
