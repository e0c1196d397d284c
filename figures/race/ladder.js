// Why the speed-up is what it is: from the formula's tokens a round down to the measured factor, one cost a rung,
// and the acceptance rate with its interval.

import { h } from "#sd/dom.js";
import { fixed, num, times } from "#sd/format.js";
import { counts, ladder, number, serverCount, wilson } from "./model.js";

const RUNGS = ["tokens", "drafting", "formula", "guesses", "variation", "measured"];

const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

export function createLadder({ t, lang }) {
  const alpha = h("p", { class: "rc-alpha" });
  const band = h("span", { class: "rc-band" }), dot = h("span", { class: "rc-dot" });
  const rungs = RUNGS.map((name) => {
    const label = h("span", { class: "rc-runglabel" }), bar = h("span", { class: "rc-rungbar" }), value = h("span", { class: "rc-rungvalue" });
    return { name, label, bar, value, row: h("li", { class: "rc-rung", dataset: { rung: name } }, label, h("span", { class: "rc-rungtrack" }, bar, h("span", { class: "rc-one", "aria-hidden": "true" })), value) };
  });
  const note = h("p", { class: "sd-note" });
  const list = h("ol", { class: "rc-ladder" }, rungs.map((rung) => rung.row));
  const element = h("div", { class: "rc-account" },
    h("div", { class: "rc-alpharow" }, alpha, h("span", { class: "rc-scale", "aria-hidden": "true" }, band, dot)),
    h("h4", {}, t("ladder.title")), note, list);

  return {
    element,
    show(run, time) {
      element.dataset.inferred = String(run.inferred);
      if (run.inferred) {
        const count = serverCount(run, lang);
        put(alpha, count ? t("ladder.server", count) : t(run.end ? "ladder.server_none" : "ladder.wait"));
        put(note, t("ladder.inferred"));
        return;
      }
      const c = counts(run.lanes.speculative, time);
      const judged = c.accepted + c.rejected, [low, high] = wilson(c.accepted, judged);
      put(alpha, judged === 0 ? t("ladder.alpha_none") : t("ladder.alpha", { alpha: fixed(c.accepted / judged, 2, lang), low: fixed(low, 2, lang), high: fixed(high, 2, lang), judged: num(judged, lang, 6) }));
      band.style.left = `${low * 100}%`;
      band.style.width = `${(high - low) * 100}%`;
      dot.hidden = judged === 0;
      if (judged) dot.style.left = `${(c.accepted / judged) * 100}%`;

      const over = run.end && time >= run.duration - 1e-9;
      const steps = over ? ladder(run.end.stats) : null;
      put(note, t(steps ? "ladder.plain" : over ? "ladder.none" : "ladder.wait"));
      const most = steps ? Math.max(...steps.map(([, value]) => value), 1) : 1;
      element.style.setProperty("--rc-one", `${(1 / most) * 100}%`);
      list.dataset.empty = String(!steps);
      const stats = run.end?.stats;
      const values = { alpha: number(stats, "acceptance", "alpha"), c: number(stats, "c"), v: number(stats, "v") };
      const filled = Object.fromEntries(Object.entries(values).map(([key, value]) => [key, !over || value === null ? "…" : num(value, lang, value < 0.001 ? 1 : 3)]));
      rungs.forEach(({ name, label, bar, value }, i) => {
        put(label, t(`ladder.${name}`, filled));
        bar.style.width = steps ? `${(steps[i][1] / most) * 100}%` : "0";
        put(value, steps ? (name === "tokens" ? num(steps[i][1], lang, 3) : times(steps[i][1], lang)) : "");
      });
    },
  };
}
