// Colours for the colour-blind: cividis for amounts (Nuñez et al., 2018), Okabe and Ito's palette for kinds.

/** From little to much: away from the background of the page, so that much can be told from nothing in print, too. */
const DARK_PAGE = ["#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"];
const LIGHT_PAGE = ["#d3c064", "#bcae6c", "#a59c74", "#7b7a77", "#213d6b"]; // what is almost full is told from what is
const KINDS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

const STEPS = 64;
const [ON_DARK, ON_LIGHT] = [DARK_PAGE, LIGHT_PAGE].map((ramp) => Array.from({ length: STEPS + 1 }, (_, i) => between(ramp, i / STEPS)));

/** @param {string[]} ramp @param {number} share 0 to 1 @returns {string} */
function between(ramp, share) {
  const place = share * (ramp.length - 1);
  const i = Math.min(Math.floor(place), ramp.length - 2);
  const parts = [1, 3, 5].map((at) => {
    const [low, high] = [ramp[i], ramp[i + 1]].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(low + (high - low) * (place - i));
  });
  return `rgb(${parts.join(",")})`;
}

/** @returns {boolean} whether the page is dark now */
export function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A policy's look, the same as in reports. @typedef {{light: string, dark: string, dash: number[]}} PolicyLook */

/** @param {PolicyLook} look @returns {string} its colour on the page as it is now */
export function colourOf({ light, dark }) {
  return isDark() ? dark : light;
}

/** The colours of amounts on the page as it is now. @returns {(share: number) => string} of a share from 0 to 1 */
export function amounts() {
  const ramp = isDark() ? ON_DARK : ON_LIGHT;
  return (share) => ramp[Math.max(0, Math.min(STEPS, Math.round(share * STEPS)))];
}

/** Kinds that have a colour of their own, of as many as there may be; the others share grey. @param {number} count @returns {number} */
export function ownColours(count) {
  return count > KINDS.length ? KINDS.length - 1 : count;
}

/** @param {number} index @returns {string} */
export function kind(index) {
  return KINDS[index % KINDS.length];
}
