// Allocated GPU (or CPU) of each run over its events, above the slider.

import { fitted } from "../shared/canvas.js";
import { kind } from "../shared/colours.js";

/** @typedef {import("./replay.js").Run} Run */

/**
 * @param {HTMLCanvasElement} canvas @param {Run[]} runs
 */
export function drawChart(canvas, runs) {
  const drawing = fitted(canvas);
  if (drawing === null) return;
  const { context, width, height } = drawing;
  const last = Math.max(...runs.map((run) => run.time[run.time.length - 1] ?? 0), 1e-9);
  runs.forEach((run, i) => {
    const values = run.gpu.some((value) => value !== null) ? run.gpu : run.cpu;
    context.strokeStyle = kind(i);
    context.lineWidth = 2;
    context.beginPath();
    values.forEach((value, e) => {
      if (value !== null) context.lineTo((run.time[e] / last) * width, height - 2 - (value / 100) * (height - 4));
    });
    context.stroke();
  });
}
