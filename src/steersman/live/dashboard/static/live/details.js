// The card of the node or pod that a person has chosen, asked for again and again.

import { ask, element } from "../shared/elements.js";
import { patch } from "./patching.js";

export class Details {
  /** @param {string} path of the server's answer @param {(answer: any) => HTMLElement} card what shows it */
  constructor(path, card) {
    this.path = path;
    this.card = card;
    /** The last answer, null before the first. @type {any} */
    this.answer = null;
    /** Why there is no newer one. */
    this.problem = "";
    this.asked = 0;
    this.isShown = false;
  }

  /** Ask the server; keep the last answer if there is no other. */
  async ask() {
    this.asked += 1;
    const { asked } = this;
    try {
      const answer = await ask(this.path);
      if (asked === this.asked) [this.answer, this.problem] = [answer, ""];
    } catch (problem) {
      if (asked === this.asked) this.problem = /** @type {Error} */ (problem).message;
    }
  }

  /** Whether it shows a pod without a node, whose time of waiting goes on. @returns {boolean} */
  get isWaiting() {
    return this.problem === "" && Boolean(this.answer?.since);
  }

  /** Show the last answer; the second time in place. @param {HTMLElement} place */
  show(place) {
    const problem = element("div", { class: "card gone" }, this.problem);
    const fresh = element("div", {}, problem, ...(this.answer === null ? [] : [this.card(this.answer)]));
    const focused = document.activeElement;
    if (this.isShown) patch(place, fresh); else place.replaceChildren(...fresh.childNodes);
    this.isShown = true;
    // A button that moved was created again, and so was a select whose value changed.
    if (focused instanceof HTMLElement && !focused.isConnected) {
      [...place.querySelectorAll(focused.localName)].filter((each) => each instanceof HTMLElement)
        .find((each) => each.textContent === focused.textContent)?.focus({ preventScroll: true });
    }
  }
}
