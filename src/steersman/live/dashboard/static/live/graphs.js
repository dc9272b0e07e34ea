// The charts of the last 24 hours, and latency by node.

import { Chart, short } from "../shared/chart.js";
import { ask, byId, element, showProblem, table } from "../shared/elements.js";

/** @typedef {(number | null)[]} Values */
/**
 * @typedef {{time: number[], pods: {label: string, values: Values}[], waiting: {label: string, values: Values}[], series: Record<string, Values>,
 *   latencies: {node: string, pods: number, median: number, p90: number, user: number | null}[]}} HistoryDocument
 */

const DAY = 86400;
/** Span of charts below which times have seconds. */
const SHORT_SECONDS = 600;
const REFRESH_MILLISECONDS = 10_000;

export class Graphs {
  /** @param {(node: string) => void} onNode @param {(name: string, onClick: () => void) => HTMLElement} link */
  constructor(onNode, link) {
    this.onNode = onNode;
    this.link = link;
    this.by = "";
    this.node = "";
    /** Name of the metric that is shown. */
    this.metric = "";
    this.seconds = 3600;
    this.ago = 0;
    this.asked = 0;
    const made = (/** @type {string} */ id, /** @type {string} */ title, /** @type {Partial<import("../shared/chart.js").ChartOptions>} */ more) =>
      new Chart(byId(id), { title, lines: [{ label: title }], group: "live", onZoom: (from, to) => this.zoom(from, to), ...more });
    this.pods = made("chart-pods", "Pods per node", {});
    this.agreement = made("chart-agreement", "Agreement in the last 30 decisions", { unit: "%", most: 100 });
    this.rate = made("chart-rate", "Bindings per second", { lines: [{ label: "bindings", }], unit: "/s" });
    this.waiting = made("chart-waiting", "Waiting pods by reason", { lines: [{ label: "all" }] });
    this.requested = made("chart-requested", "Requested", { lines: [{ label: "GPU" }, { label: "CPU" }], unit: "%", most: 100 });
    this.shown = made("chart-metric", "A metric", { lines: [{ label: "value" }] });
    byId("window").addEventListener("change", () => { this.seconds = Number(byId("window").value); this.refresh(); });
    byId("until").addEventListener("input", () => { this.ago = -Number(byId("until").value); this.refresh(); });
    byId("rule").addEventListener("change", () => this.refresh());
    this.refresh();
    setInterval(() => { if (!document.hidden) this.refresh(); }, REFRESH_MILLISECONDS);
  }

  /** @param {number} from @param {number} to both infinite: all */
  zoom(from, to) {
    const now = Date.now() / 1000;
    const isPart = Number.isFinite(from);
    [this.seconds, this.ago] = isPart ? [Math.max(30, Math.round(to - from)), Math.max(0, Math.round(now - to))] : [DAY, 0];
    byId("until").value = -this.ago;
    byId("window").value = isPart ? "part" : DAY;
    this.refresh();
  }

  async refresh() {
    this.asked += 1;
    const { asked } = this;
    const query = new URLSearchParams({ seconds: this.seconds.toString(), ago: this.ago.toString(), by: this.by, node: this.node });
    /** @type {HistoryDocument | null} */
    const history = await ask(`/api/live/history?${query}`).catch((problem) => { showProblem(problem); return null; });
    if (history === null || asked !== this.asked) return;
    byId("problem").hidden = true;
    this.show(history);
  }

  /** @param {HistoryDocument} history */
  show(history) {
    const { time, series } = history;
    const until = Date.now() / 1000 - this.ago;
    const nothing = time.map(() => null);
    const charts = [this.pods, this.agreement, this.rate, this.waiting, this.requested, this.shown];
    this.pods.setLines(history.pods.map(({ label }) => ({ label })));
    this.pods.show([time, ...history.pods.map(({ values }) => values)]);
    const rule = byId("rule").value;
    this.agreement.setLines([{ label: rule || "no rule" }]);
    this.agreement.show([time, series[`rule ${rule}`] ?? nothing]);
    this.rate.show([time, series["bindings per second"] ?? nothing]);
    this.waiting.setLines([{ label: "all" }, ...history.waiting.map(({ label }) => ({ label }))]);
    this.waiting.show([time, series["pods waiting"] ?? nothing, ...history.waiting.map(({ values }) => values)]);
    this.requested.show([time, series["GPU requested"] ?? nothing, series["CPU requested"] ?? nothing]);
    byId("chart-metric").hidden = this.metric === "";
    if (this.metric) {
      this.shown.setLines([{ label: this.metric }]);
      this.shown.show([time, series[this.metric] ?? nothing]);
    }
    // A history that began within the time fills the chart.
    const from = time.length > 1 ? Math.max(until - this.seconds, time[0]) : until - this.seconds;
    charts.forEach((chart) => chart.setRange(from, until));
    byId("span").textContent = `${moment(until - this.seconds, this.seconds)} to ${this.ago ? moment(until, this.seconds) : "now"}`;
    this.showLatencies(history.latencies);
  }

  /** @param {{rules: {rule: string, agreed: number, of: number}[], skipped: number}} now */
  showAgreement(now) {
    const chosen = now.rules.find(({ rule }) => rule === byId("rule").value);
    const skipped = now.skipped ? `; ${now.skipped} bindings were not compared` : "";
    byId("agreement").textContent = chosen === undefined || chosen.of === 0 ? `No binding has been compared yet${skipped}.`
      : `${chosen.rule} would have taken the same node, or one of equal score, in ${chosen.agreed} of the last ${chosen.of} decisions${skipped}.`;
  }

  /** @param {HistoryDocument["latencies"]} latencies */
  showLatencies(latencies) {
    const most = Math.max(1e-3, ...latencies.map(({ p90 }) => p90));
    const isMeasured = latencies.some(({ user }) => user !== null);
    const rows = latencies.map(({ node, pods, median, p90, user }) => {
      const [bar, mark] = [element("i"), element("b")];
      bar.style.width = `${(100 * median) / most}%`;
      mark.style.left = `calc(${(100 * p90) / most}% - 2px)`;
      return [this.link(node, () => this.onNode(node)), element("div", { class: "bar" }, bar, mark), short(median), short(p90), pods.toString(),
        ...(isMeasured ? [user === null ? "–" : short(user)] : [])];
    });
    byId("latency").replaceChildren(element("h3", {}, "Latency by node: seconds from creation to binding"),
      rows.length ? element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latency by node" },
        table(["node", "median and 90th percentile", "median", "p90", "pods", ...(isMeasured ? ["to users, ms"] : [])], rows, [2, 3, 4, 5]))
        : element("p", {}, "No pod was bound in this time while the dashboard watched."));
  }
}

/**
 * A time of day, with its date if that is not today's.
 * @param {number} at seconds since 1970 @param {number} span that is shown, in seconds @returns {string}
 */
function moment(at, span) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(span < SHORT_SECONDS ? { second: "2-digit" } : {}), hour12: false });
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.toLocaleDateString([], { weekday: "short", day: "numeric", month: "short" })}, ${time}`;
}
