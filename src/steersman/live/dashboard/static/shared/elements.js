// Elements of pages. All text is set as text: names come from clusters.

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/**
 * @param {string} name @param {Record<string, string>} attributes @param {(Node | string)[]} children
 * @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** @param {string[]} titles @param {(Node | string)[][]} rows @param {number[]} numbers columns of numbers */
export function table(titles, rows, numbers) {
  const cell = (/** @type {string} */ name, /** @type {Node | string} */ content, /** @type {number} */ i) =>
    element(name, numbers.includes(i) ? { class: "number" } : {}, content);
  return element("table", {},
    element("thead", {}, element("tr", {}, ...titles.map((title, i) => cell("th", title, i)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((content, i) => cell("td", content, i))))));
}

/** @param {number} number @param {string} noun in singular @returns {string} the number with its noun */
export function countOf(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** @param {number} seconds @returns {string} */
export function lasts(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

/** Ask the server; throw its line of what is wrong. @param {string} path @returns {Promise<any>} */
export async function ask(path) {
  const answer = await fetch(path).catch(() => null);
  if (answer === null) throw new Error("The server has ended.");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

/** Show one line of what is wrong above the page. @param {unknown} problem */
export function showProblem(problem) {
  showProblems([problem]);
}

/** Show each different problem once, or that there is none any more. @param {unknown[]} problems */
export function showProblems(problems) {
  const line = byId("problem");
  const texts = problems.map((problem) => (problem instanceof Error ? problem.message : String(problem)));
  line.hidden = texts.length === 0;
  line.textContent = [...new Set(texts)].join(" ");
}

/** Show what a reader must know of the workload. @param {string[]} warnings */
export function showWarnings(warnings) {
  byId("warnings").replaceChildren(...warnings.map((text) => element("li", {}, text)));
  byId("warnings").hidden = warnings.length === 0;
}
