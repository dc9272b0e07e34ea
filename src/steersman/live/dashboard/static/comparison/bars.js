// A bar for a mean, with its interval, and the axis below the bars.

import { fitted } from "../shared/canvas.js";
import { short } from "../shared/chart.js";

/** @typedef {{low: number, high: number}} Range */

const [MARGIN, TICK_WIDTH] = [2, 60];

/** @param {number} value @param {Range} range @param {number} width of the canvas @returns {number} */
function placeOf(value, { low, high }, width) {
  return MARGIN + ((value - low) / (high - low || 1)) * (width - 2 * MARGIN);
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} from @param {number} to */
function vertical(context, x, from, to) {
  context.moveTo(x, from);
  context.lineTo(x, to);
}

/** @param {string} name of a CSS variable @returns {string} */
function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

/**
 * @param {HTMLCanvasElement} canvas @param {{mean: number | null, interval: [number | null, number | null]}} values
 * @param {Range} range of the axis @param {string} colour
 */
export function drawBar(canvas, { mean, interval: [low, high] }, range, colour) {
  const drawing = fitted(canvas);
  if (drawing === null) return;
  const { context, width, height } = drawing;
  const [zero, middle] = [placeOf(0, range, width), height / 2];
  if (mean !== null) {
    const end = placeOf(mean, range, width);
    context.fillStyle = colour;
    context.fillRect(Math.min(zero, end), 4, Math.max(1, Math.abs(end - zero)), height - 8);
  }
  context.lineWidth = 1;
  context.strokeStyle = colourOf("--quiet");
  context.beginPath();
  vertical(context, Math.round(zero) + 0.5, 0, height);
  context.stroke();
  if (low === null || high === null) return;
  context.beginPath();
  context.moveTo(placeOf(low, range, width), middle);
  context.lineTo(placeOf(high, range, width), middle);
  for (const each of [low, high]) vertical(context, placeOf(each, range, width), middle - 5, middle + 5);
  // With an edge in the colour of the page it is seen on bars of any colour.
  for (const [colour, thickness] of /** @type {[string, number][]} */ ([["--back", 4], ["--text", 1.5]])) {
    context.strokeStyle = colourOf(colour);
    context.lineWidth = thickness;
    context.stroke();
  }
}

/** @param {HTMLCanvasElement} canvas @param {Range} range */
export function drawAxis(canvas, range) {
  const drawing = fitted(canvas);
  if (drawing === null) return;
  const { context, width } = drawing;
  context.strokeStyle = colourOf("--quiet");
  context.fillStyle = colourOf("--quiet");
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "top";
  context.beginPath();
  for (const tick of ticksOf(range, Math.max(1, Math.floor(width / TICK_WIDTH)))) {
    const x = placeOf(tick, range, width);
    vertical(context, x, 0, 4);
    const text = short(tick).replace("-", "\u2212");
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.max(0, Math.min(width - 2 * half, x - half)), 6);
  }
  context.stroke();
}

/** Round numbers in a range. @param {Range} range @param {number} most @returns {number[]} */
export function ticksOf({ low, high }, most) {
  const least = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) ?? 10 * power;
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
  return ticks;
}
