// Colours for the colour-blind: cividis for amounts (Nuñez et al., 2018), Okabe and Ito's palette for kinds.

/** Without its darkest part, which cannot be told from the background of a dark page. */
const CIVIDIS = ["#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"];
const KINDS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

const STEPS = 64;
const AMOUNTS = Array.from({ length: STEPS + 1 }, (_, i) => between(i / STEPS));

/** @param {number} share 0 to 1 @returns {string} */
function between(share) {
  const place = share * (CIVIDIS.length - 1);
  const i = Math.min(Math.floor(place), CIVIDIS.length - 2);
  const parts = [1, 3, 5].map((at) => {
    const [low, high] = [CIVIDIS[i], CIVIDIS[i + 1]].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(low + (high - low) * (place - i));
  });
  return `rgb(${parts.join(",")})`;
}

/** @param {number} share 0 to 1 @returns {string} */
export function amount(share) {
  return AMOUNTS[Math.max(0, Math.min(STEPS, Math.round(share * STEPS)))];
}

/** Kinds that have a colour of their own, of as many as there may be; the others share grey. @param {number} count @returns {number} */
export function ownColours(count) {
  return count > KINDS.length ? KINDS.length - 1 : count;
}

/** @param {number} index @returns {string} */
export function kind(index) {
  return KINDS[index % KINDS.length];
}
