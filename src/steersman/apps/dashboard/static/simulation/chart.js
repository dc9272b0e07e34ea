// Allocated GPU (or CPU) of each run over its events, above the slider.

import { kind } from "../shared/colours.js";

/** @typedef {import("./replay.js").Run} Run */

/**
 * @param {HTMLCanvasElement} canvas @param {Run[]} runs
 */
export function drawChart(canvas, runs) {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
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
