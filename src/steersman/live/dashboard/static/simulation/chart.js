// Allocated GPU (or CPU) of each run over its events, above the slider.

import { fitted } from "../shared/canvas.js";
import { colourOf } from "../shared/colours.js";

/** @typedef {import("./replay.js").Run} Run */

const TEXT = 11;

/** @param {Run} run @param {boolean} isSecond @returns {string} its line as a border of CSS; the second is dashed, since both may lie on each other */
export function lineOf({ look }, isSecond) {
  return `3px ${isSecond ? "dashed" : "solid"} ${colourOf(look)}`;
}

/**
 * @param {HTMLCanvasElement} canvas @param {Run[]} runs
 * @param {(run: number, share: number) => number} eventsAt number of a run's events at a place of the slider, from 0 to 1
 */
export function drawChart(canvas, runs, eventsAt) {
  const drawing = fitted(canvas);
  if (drawing === null) return;
  const { context, width, height } = drawing;
  const resource = runs[0].gpu.some((value) => value !== null) ? "gpu" : "cpu";
  runs.forEach((run, i) => {
    context.strokeStyle = colourOf(run.look);
    context.lineWidth = 2;
    context.setLineDash(i ? [6, 4] : []);
    context.beginPath();
    for (let x = 0; x <= width; x += 1) {
      const value = run[resource][eventsAt(i, x / width) - 1] ?? 0;
      context.lineTo(x, height - 2 - (value / 100) * (height - 4));
    }
    context.stroke();
  });
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--quiet");
  context.font = `${TEXT}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.fillText(`${resource.toUpperCase()} allocated; the top is 100 %`, 0, 0);
}
