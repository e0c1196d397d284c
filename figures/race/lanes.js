// The text of one lane. Every token is an element that is there from one pass to another: a drafted one until its
// round is verified, a rejected one until the next round is, all others for good. So the text at any
// time is a count of passes, forwards and backwards, and only what changes is touched.

import { h } from "#sd/dom.js";
import { shown } from "./model.js";

const visible = (token) => token.text.replaceAll("\n", "⏎");

export function createLane({ name, t, onPoint, onPick }) {
  const text = h("div", { class: "rc-text", dir: "auto", role: "region", "aria-label": t("lane.text", { lane: t(`lane.${name}`) }) });
  const count = h("span", { class: "rc-count" }), rate = h("span", { class: "rc-rate" });
  const head = h("div", { class: "rc-lanehead" },
    h("h4", { class: "rc-lanename", dataset: { lane: name } }, t(`lane.${name}`)), count, rate);

  let lane = null;
  let drawn = 0; // passes whose tokens have elements
  let at = 0; // passes that have ended, as shown
  let changes = []; // pass → elements that appear or go with its end
  let emitted = []; // the elements whose tokens are the text, in order
  let marked = null, parted = -1;
  let open = []; // drafted and rejected elements that the next target pass will clear

  const entry = (i) => (changes[i] ??= []);
  function place(item, from) {
    const until = from + 1 <= at ? (item.until !== null && at > item.until ? "gone" : "on") : "future";
    if (item.el.dataset.state !== until) item.el.dataset.state = until;
  }
  const put = (item) => place(item, item.from);

  /** Make elements for passes that have none yet. */
  function grow() {
    for (; drawn < lane.passes.length; drawn++) {
      const pass = lane.passes[drawn];
      const target = pass.kind === "verify" || pass.kind === "decode";
      if (target) {
        for (const item of open) { item.until = drawn; entry(drawn).push(item); put(item); }
        open = [];
      }
      for (const token of pass.tokens) {
        // Line ends of tokens that will not stay are shown as signs, or the text would jump.
        const passing = token.origin === "drafted" || token.origin === "rejected";
        const el = h("span", { class: "rc-token", dataset: { origin: token.origin, by: token.by ?? pass.by ?? "", pass: drawn } }, passing ? visible(token) || shown(token) : token.text);
        const item = { el, from: drawn, until: null };
        entry(drawn).push(item);
        (passing ? open : emitted).push(passing ? item : el);
        put(item);
        text.append(el);
      }
    }
  }

  function pointed(event) {
    const el = event.target.closest?.(".rc-token");
    return el ? lane.passes[Number(el.dataset.pass)] : null;
  }
  text.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") onPoint(pointed(event)); });
  text.addEventListener("pointerleave", () => onPoint(null));
  text.addEventListener("click", (event) => { const pass = pointed(event); if (pass) onPick(pass); });

  return {
    head, text,
    /** Show another lane of the same name from its beginning. */
    setLane(next) {
      lane = next;
      drawn = at = 0;
      changes = [];
      open = [];
      emitted = [];
      marked = null;
      parted = -1;
      text.replaceChildren();
      text.style.minHeight = "";
    },
    /** Show the text after `n` passes. */
    show(n) {
      grow();
      if (n === at) return;
      const [lo, hi] = n > at ? [at, n] : [n, at];
      at = n;
      for (let i = lo; i < hi; i++) for (const item of changes[i] ?? []) put(item);
      const tall = text.scrollHeight > text.clientHeight + 1;
      if (tall) { text.scrollTop = text.scrollHeight; text.tabIndex = 0; } else text.removeAttribute("tabindex");
    },
    /** Keep as much room as the whole text will take, so that nothing below it moves. */
    reserve(length) {
      text.style.minHeight = "";
      if (lane.finish !== null) {
        grow();
        text.classList.add("rc-measure");
        const height = text.offsetHeight;
        text.classList.remove("rc-measure");
        text.style.minHeight = `${height}px`;
      } else {
        // Not known yet: English runs to about 4.4 letters a token, a letter to about half its size.
        const size = parseFloat(getComputedStyle(text).fontSize);
        const lines = Math.ceil((length * 4.4 * size * 0.5) / Math.max(1, text.clientWidth)) + 2;
        text.style.minHeight = `min(${(lines * 1.75).toFixed(2)}em, var(--rc-tall))`;
      }
    },
    /** Mark the tokens of one pass. */
    mark(index) {
      if (index === marked) return;
      marked = index;
      for (const el of text.querySelectorAll(".rc-marked")) el.classList.remove("rc-marked");
      if (index !== null) for (const el of text.querySelectorAll(`[data-pass="${index}"]`)) el.classList.add("rc-marked");
    },
    /** Mark the token at which this lane's text leaves the other's; -1: it does not. */
    part(index) {
      if (index === parted) return;
      emitted[parted]?.classList.remove("rc-part");
      emitted[index]?.classList.add("rc-part");
      parted = index;
    },
    numbers(counted, speed) {
      if (count.textContent !== counted) count.textContent = counted;
      if (rate.textContent !== speed) rate.textContent = speed;
    },
  };
}
