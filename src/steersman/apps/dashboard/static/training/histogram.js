// Counts of an iteration's values as bars; the same in words for screen readers.

import { fitted } from "../shared/canvas.js";

/** @typedef {import("./data.js").Histogram} Histogram */

/** @param {HTMLCanvasElement} canvas @param {string} name @param {Histogram} histogram @param {string} colour */
export function drawHistogram(canvas, name, { edges, counts }, colour) {
  const drawing = fitted(canvas);
  if (drawing === null) return;
  const { context, width, height } = drawing;
  const most = Math.max(1, ...counts);
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const room = height - 18;
  context.fillStyle = colour;
  counts.forEach((count, i) => {
    const [from, to] = [edges[i], edges[i + 1]].map((edge) => ((edge - first) / (last - first || 1)) * width);
    const bar = (count / most) * room;
    context.fillRect(from + 0.5, room - bar, Math.max(1, to - from - 1), bar);
  });
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--quiet");
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "bottom";
  context.fillText(text(first), 0, height);
  context.textAlign = "right";
  context.fillText(text(last), width, height);
  const highest = counts.indexOf(Math.max(...counts));
  const all = counts.reduce((sum, count) => sum + count, 0);
  canvas.setAttribute("aria-label", `${name}: ${all} values from ${text(first)} to ${text(last)}, most (${counts[highest]}) at ${text(edges[highest])}`);
}

/** @param {number} value @returns {string} */
function text(value) {
  return Number(value.toPrecision(4)).toString();
}
