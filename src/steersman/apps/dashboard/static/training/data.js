// What is known of a run: tables that grow, its progress and the end of its log.

/**
 * @typedef {{edges: number[], counts: number[]}} Histogram
 * @typedef {{state: string, iteration: number, seconds: number, iterations: number | null, minutes: number | null,
 *   best: number | null, bestIteration: number, requests: string[], histograms: Record<string, Histogram>}} Progress
 * @typedef {{id: string, name: string, algorithm: string, reference: string,
 *   state: "learning" | "paused" | "done" | "stopped" | "unknown", progress: Progress | null, secondsLeft: number | null,
 *   pending: string, problem: string}} Head
 * @typedef {{generation: number, first: number, columns: Record<string, (number | null)[]>}} TableNews
 * @typedef {{head: Head, tables: Record<string, TableNews>, problems: string[], log: string[]}} News
 */

const KEY = "iteration";

export class RunData {
  constructor() {
    /** @type {Head} */
    this.head = { id: "", name: "", algorithm: "", reference: "", state: "unknown", progress: null, secondsLeft: null, pending: "", problem: "" };
    /** @type {Record<string, {generation: number, columns: Record<string, (number | null)[]>}>} */
    this.tables = {};
    /** @type {string[]} */
    this.log = [];
    /** @type {string[]} why the run, or tables of it, cannot be read */
    this.problems = [];
  }

  /** What the server need not send again, for the query. @returns {string} */
  known() {
    return Object.entries(this.tables).map(([name, { generation, columns }]) =>
      `&${name.replace(".csv", "")}=${generation}:${columns[KEY]?.length ?? 0}`).join("");
  }

  /** @param {News} news */
  add(news) {
    this.head = news.head;
    this.problems = [news.head.problem, ...news.problems].filter(Boolean);
    this.log = news.log;
    for (const [name, { generation, first, columns }] of Object.entries(news.tables)) {
      const there = this.tables[name];
      if (there === undefined || there.generation !== generation || first === 0) {
        this.tables[name] = { generation, columns };
      } else if (first === there.columns[KEY]?.length) {
        for (const [column, values] of Object.entries(columns)) there.columns[column].push(...values);
      }
    }
  }

  /** @param {string} table @param {string} name @returns {boolean} whether a column has a number */
  has(table, name) {
    return this.tables[table]?.columns[name]?.some((value) => value !== null) ?? false;
  }

  /** @param {string} table @param {string} name @returns {import("../shared/merging.js").Column} */
  column(table, name) {
    const { columns } = this.tables[table];
    return { x: /** @type {number[]} */ (columns[KEY]), y: columns[name] };
  }
}
