// Why a policy takes a node, and why not others. All text is set as text: names come from clusters.

import { element, table } from "./elements.js";

/**
 * @typedef {{policy: string, member: string, choice: string, node: string, score: number, points: number | null, spread: number, equal: number,
 *   decidedBy: string, comparedWith: string, notScheduled: string, nodes: number, runnersUp: {node: string, points: number | null}[],
 *   features: {name: string, value: number | null, other: number | null, points: number | null}[], refused: Record<string, number>}} Explanation
 */

const SHOWN_FEATURES = 8;

/** @param {Explanation | string} explained or what is to be said instead of it @returns {HTMLElement[]} */
export function explanationParts(explained) {
  if (typeof explained === "string") return [element("p", { role: "status" }, explained)];
  const parts = [];
  if (explained.notScheduled) parts.push(element("p", {}, `It is not placed now: ${explained.notScheduled}.`));
  if (explained.node) {
    const equal = explained.equal ? ` ${explained.equal} other nodes have the same score.` : "";
    parts.push(element("p", {}, `${explained.member ? `The portfolio's member ${explained.member}` : "The policy"} ${explained.notScheduled ? "would prefer" : "prefers"} `
      + `${explained.node} (${points(explained.points)} points, by ${explained.decidedBy}).${equal}`));
    if (explained.choice) parts.push(element("p", {}, `How the member was chosen: ${explained.choice}.`));
    if (explained.runnersUp.length) {
      parts.push(element("h3", {}, "Runners-up"),
        table(["node", "points"], explained.runnersUp.map((each) => [each.node, points(each.points)]), [1]));
    }
  }
  if (explained.features.length) {
    parts.push(element("h3", {}, `Why ${explained.node} and not ${explained.comparedWith}`),
      table(["feature", explained.node, explained.comparedWith, "points"],
        explained.features.slice(0, SHOWN_FEATURES).map((each) => [
          each.name, short(each.value), short(each.other), `${(each.points ?? -1) >= 0 ? "+" : ""}${points(each.points)}`,
        ]), [1, 2, 3]));
  }
  const refused = Object.entries(explained.refused).sort((one, other) => other[1] - one[1]);
  if (refused.length) {
    parts.push(element("h3", {}, "Why not elsewhere"),
      table(["reason", "nodes"], refused.map(([reason, count]) => [reason, count.toString()]), [1]));
  }
  return parts;
}

/** @param {number | null} value null where it is not finite @returns {string} */
function points(value) {
  return value === null ? "–" : value.toFixed(1);
}

/** @param {number | null} value null where it is not finite @returns {string} */
function short(value) {
  return value === null ? "–" : Number(value.toPrecision(4)).toString();
}
