// What the colours of a heat map mean.

import { kind, ownColours } from "./colours.js";
import { element } from "./elements.js";
import { CELL_SIZE, drawCell, looks } from "./heatmap.js";

/** @typedef {[import("./heatmap.js").Look, string]} Entry a look and what it means */

/** @param {HTMLElement} place @param {import("./heatmap.js").Mode} mode @param {string[]} models of GPUs */
export function showLegend(place, mode, models) {
  const { idle, full, used, wasted } = looks();
  const entries = /** @type {Record<import("./heatmap.js").Mode, Entry[]>} */ ({
    used: [[idle, "idle"], [used(0.05), "little used"], [used(0.5), "half"], [used(1), "full"]],
    shared: [[idle, "idle"], [{ colour: kind(0) }, "one pod, whole"], [{ colour: kind(4) }, "one pod, a share"], [{ colour: kind(1) }, "several pods"]],
    fragmented: [[full, "full"], [idle, "idle, and most typical pods can use it"],
      [wasted(0.25), "a quarter of the GPU idle, and most typical pods cannot use it"], [wasted(1), "all of it"]],
    model: [...modelEntries(models), [idle, "no GPU model"]],
  })[mode];
  place.replaceChildren(...entries.map(([look, text]) => element("span", {}, sample(look), text)));
}

/** @param {import("./heatmap.js").Look} look @returns {HTMLElement} a cell of the map, twice as large */
function sample(look) {
  const scale = 2 * (window.devicePixelRatio || 1);
  const [width, height] = [CELL_SIZE.width, CELL_SIZE.height];
  const canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { "aria-hidden": "true" }));
  [canvas.style.width, canvas.style.height] = [`${2 * width}px`, `${2 * height}px`];
  [canvas.width, canvas.height] = [Math.round(scale * width), Math.round(scale * height)];
  const context = canvas.getContext("2d");
  context?.scale(scale, scale);
  if (context) drawCell(context, 0, 0, look);
  return canvas;
}

/** @param {string[]} models the most frequent first @returns {Entry[]} the look and name of each that has its own */
function modelEntries(models) {
  const own = ownColours(models.length);
  const entries = models.slice(0, own).map((name, i) => /** @type {Entry} */ ([{ colour: kind(i) }, name]));
  return own < models.length ? [...entries, [{ colour: kind(own) }, `${models.length - own} other models`]] : entries;
}
