// A bar for a mean, with its interval.

import { fitted } from "../shared/canvas.js";

/**
 * @param {HTMLCanvasElement} canvas @param {{mean: number | null, low: number | null, high: number | null}} values
 * @param {{low: number, high: number}} range of the axis @param {string} colour
 */
export function drawBar(canvas, { mean, low, high }, range, colour) {
  const drawing = fitted(canvas);
  if (drawing === null || mean === null) return;
  const { context, width, height } = drawing;
  const place = (/** @type {number} */ value) => ((value - range.low) / (range.high - range.low || 1)) * (width - 4) + 1;
  const [zero, end, middle] = [place(0), place(mean), height / 2];
  context.fillStyle = colour;
  context.fillRect(Math.min(zero, end), 3, Math.max(1, Math.abs(end - zero)), height - 6);
  if (low === null || high === null) return;
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(place(low), middle);
  context.lineTo(place(high), middle);
  for (const each of [low, high]) {
    context.moveTo(place(each), middle - 5);
    context.lineTo(place(each), middle + 5);
  }
  context.stroke();
}
