// A canvas that is as sharp as the screen, drawn on in CSS pixels.

/**
 * Fit a canvas to its place on the page, empty.
 * @param {HTMLCanvasElement} canvas
 * @returns {{context: CanvasRenderingContext2D, width: number, height: number} | null} null: the browser has no canvas
 */
export function fitted(canvas) {
  const context = canvas.getContext("2d");
  if (context === null) return null;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}
