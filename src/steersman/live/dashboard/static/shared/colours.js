// Colours for the colour-blind: cividis for amounts (Nuñez et al., 2018); for kinds Okabe and Ito's palette on a dark page.
// On a light page half of that palette has a contrast below 3, so its hues are darker there. They differ by 11 or more (CIE76)
// in every kind of colour blindness (Machado et al., 2009), Okabe and Ito's by 7.

/** From little to much: away from the background of the page, so that much can be told from nothing in print, too. */
const DARK_PAGE = ["#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"];
const LIGHT_PAGE = ["#d3c064", "#bcae6c", "#a59c74", "#7b7a77", "#213d6b"]; // what is almost full is told from what is
const KINDS_ON_LIGHT = ["#0072b2", "#c77700", "#145a2e", "#e0218a", "#0d9a9f", "#8c1800", "#7a6200", "#4a4d53"];
const KINDS_ON_DARK = ["#3f97d8", "#e69f00", "#009e73", "#cc79a7", "#8accf5", "#e0651a", "#f0e442", "#a8a8a8"];

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
  return Math.min(count, KINDS_ON_LIGHT.length - Number(count > KINDS_ON_LIGHT.length));
}

/** @param {number} index @returns {string} its colour on the page as it is now */
export function kind(index) {
  const kinds = isDark() ? KINDS_ON_DARK : KINDS_ON_LIGHT;
  return kinds[index % kinds.length];
}
