// What all pages have: links to the other screens, and the choice between light and dark.

import { ask, byId, element, showProblem } from "./elements.js";

const THEME = "theme";

/** @param {string} screen name of the page's own screen */
export function startPage(screen) {
  document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? "";
  byId("theme").addEventListener("click", switchTheme);
  ask("/api/screens").then((screens) => showLinks(screens, screen)).catch(showProblem);
}

/** @param {{name: string, title: string}[]} screens @param {string} current */
function showLinks(screens, current) {
  byId("screens").replaceChildren(...screens.map(({ name, title }) =>
    element("a", name === current ? { href: `/${name}/`, "aria-current": "page" } : { href: `/${name}/` }, title)));
}

/** Switch, remember it, and let canvases draw in the other colours (event `theme` of the document). */
function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem(THEME, root.dataset.theme);
  document.dispatchEvent(new Event("theme"));
}
