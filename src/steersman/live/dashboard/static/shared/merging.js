// Columns of several runs on one x axis.

/** @typedef {import("./chart.js").Values} Values */
/** @typedef {{x: number[], y: Values}} Column */

/**
 * Columns of several runs at common places of the x axis, as a chart takes them.
 * @param {Column[]} columns @returns {[number[], ...Values[]]}
 */
export function merged(columns) {
  const x = columns.every((each) => each.x === columns[0].x) ? columns[0].x
    : [...new Set(columns.flatMap((each) => each.x))].sort((one, other) => one - other);
  const place = new Map(x.map((value, i) => [value, i]));
  const aligned = columns.map((column) => {
    if (column.x === x) return column.y;
    /** @type {Values} */
    const values = new Array(x.length).fill(undefined);
    column.x.forEach((value, i) => { values[place.get(value) ?? 0] = column.y[i]; });
    return values;
  });
  return [x, ...aligned];
}
