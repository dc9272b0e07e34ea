// What the colours of a heat map mean.

import { amount, kind, ownColours } from "./colours.js";
import { element } from "./elements.js";

/** @param {HTMLElement} place @param {import("./heatmap.js").Mode} mode @param {string[]} models of GPUs */
export function showLegend(place, mode, models) {
  const idle = "var(--idle)";
  const entries = {
    used: [[idle, "idle"], [amount(0.05), "little used"], [amount(0.5), "half"], [amount(1), "full"]],
    shared: [[idle, "idle"], [kind(0), "one pod, whole"], [kind(4), "one pod, a share"], [kind(1), "several pods"]],
    fragmented: [[idle, "full"], [amount(0), "idle and usable"], [amount(1), "idle and of no use to typical pods"]],
    model: [...modelEntries(models), [idle, "no GPU model"]],
  }[mode];
  place.replaceChildren(...entries.map(([colour, text]) => {
    const sample = element("i");
    sample.style.background = colour;
    return element("span", {}, sample, text);
  }));
}

/** @param {string[]} models the most frequent first @returns {string[][]} colour and name of each that has its own */
function modelEntries(models) {
  const own = ownColours(models.length);
  const entries = models.slice(0, own).map((name, i) => [kind(i), name]);
  return own < models.length ? [...entries, [kind(own), `${models.length - own} other models`]] : entries;
}
