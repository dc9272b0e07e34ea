// Change what an element shows in place: what stays the same keeps its focus, scroll position and listeners.

/** Make an element's content that of another one. @param {Node} place @param {Node} fresh loses its content */
export function patch(place, fresh) {
  const [old, wanted] = [[...place.childNodes], [...fresh.childNodes]];
  wanted.forEach((child, i) => {
    const there = old[i];
    if (there === undefined) place.appendChild(child);
    else if (there.isEqualNode(child)) return;
    else if (isAlike(there, child)) patch(there, child);
    else place.replaceChild(child, there);
  });
  old.slice(wanted.length).forEach((child) => place.removeChild(child));
}

/**
 * Whether elements differ in their content alone. A button and a list of options are made anew: their listeners may differ.
 * @param {Node} one @param {Node} other
 */
function isAlike(one, other) {
  return one instanceof HTMLElement && !["BUTTON", "SELECT"].includes(one.tagName) && one.cloneNode(false).isEqualNode(other.cloneNode(false));
}
