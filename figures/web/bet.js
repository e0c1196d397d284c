// The guess before the answer. Alone, a reader who has guessed sees the answer as soon as it is known. In a class
// (app/static/room.js) everybody guesses first: the model's `together` is then
//   { phase: "open" | "locked" | "revealed", counts: [3, 0, 9] or null, lead: true on the teacher's page }
// and null when the reader is alone.

import { h } from "#sd/dom.js";
import { button } from "#sd/controls.js";
import { update } from "#sd/model.js";

/** Returns { element, reveal(index, values) }; element is null where the figure has no bet. */
export function createBet(on, model, t) {
  const count = Object.keys(model.get("strings")).filter((k) => /^bet\.option\.\d+$/.test(k)).length;
  let revealed = model.get("betAnswer") ?? null; // an index, or null until the view knows
  let why = {};
  const text = h("p", { class: "sd-bet-why", "aria-live": "polite" });
  const tallies = Array.from({ length: count }, () => h("span", { class: "sd-bet-count", hidden: true }));
  const buttons = tallies.map((tally, i) => {
    const element = button(on, t(`bet.option.${i + 1}`), () => update(model, { bet: i }));
    element.append(tally);
    return element;
  });

  function draw() {
    const choice = model.get("bet"), together = model.get("together") ?? null;
    const phase = together?.phase ?? "alone";
    const known = revealed !== null && (phase === "revealed" || (phase === "alone" && choice >= 0));
    const counts = together?.counts ?? null, total = counts?.reduce((a, b) => a + b, 0);
    buttons.forEach((b, i) => {
      b.setAttribute("aria-pressed", String(choice === i));
      b.disabled = phase === "locked" || phase === "revealed" || Boolean(together?.lead);
      if (known && i === revealed) b.dataset.verdict = "right";
      else if (known && i === choice) b.dataset.verdict = "wrong";
      else delete b.dataset.verdict;
      tallies[i].hidden = !counts;
      tallies[i].textContent = counts ? t("ui.bet_count", { count: counts[i] }) : "";
      b.toggleAttribute("data-counted", Boolean(counts));
      b.style.setProperty("--share", total ? `${(100 * counts[i]) / total}%` : "0%");
    });
    const say = words(phase, choice, known);
    if (text.textContent !== say) text.textContent = say;
  }
  function words(phase, choice, known) {
    if (phase === "open") return choice < 0 ? "" : t("ui.bet_together");
    if (phase === "locked") return t("ui.bet_locked");
    if (known) return t("bet.why", why);
    return choice < 0 ? "" : t("ui.bet_wait");
  }

  if (count === 0) return { element: null, reveal() {} };
  on.follow(model, ["bet", "together"], draw);
  return {
    element: h("div", { class: "sd-bet", role: "group", "aria-label": t("ui.bet") },
      h("p", {}, h("b", {}, t("ui.bet"), " "), t("bet.question")), h("div", { class: "sd-bet-options" }, buttons), text),
    /** The answer is known: option index, and values for `bet.why`; null takes it back. */
    reveal(index, values = {}) { revealed = index; why = values; draw(); },
  };
}
