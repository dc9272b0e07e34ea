// What all pages have: links to the other screens, and the choice between light and dark.

import { isDark } from "./colours.js";
import { ask, byId, element, showProblem } from "./elements.js";

const THEME = "theme";

/** @param {string} screen name of the page's own screen */
export function startPage(screen) {
  document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? "";
  byId("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    localStorage.setItem(THEME, theme);
    show(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper is light.
  window.addEventListener("beforeprint", () => show("light"));
  window.addEventListener("afterprint", () => show(localStorage.getItem(THEME) ?? ""));
  ask("/api/screens").then((screens) => showLinks(screens, screen)).catch(showProblem);
}

/** @param {{name: string, title: string}[]} screens @param {string} current */
function showLinks(screens, current) {
  byId("screens").replaceChildren(...screens.map(({ name, title }) =>
    element("a", name === current ? { href: `/${name}/`, "aria-current": "page" } : { href: `/${name}/` }, title)));
}

/** @param {string} theme `light`, `dark`, or "" for the one of the browser */
function show(theme) {
  document.documentElement.dataset.theme = theme;
  redraw();
}

/** Let canvases draw in the colours of the page. */
function redraw() {
  document.dispatchEvent(new Event("theme"));
}
