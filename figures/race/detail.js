// One pass in full: what it was, how long it took, and for a verification what the rule saw at each place.

import { h } from "#sd/dom.js";
import { duration, num } from "#sd/format.js";
import { about, shown } from "./model.js";

const NONE = "–";

export function createDetail({ t, lang, onRelease }) {
  const title = h("p", { class: "rc-detailhead" });
  const said = h("p", { class: "rc-detailsay" });
  const table = h("table", { class: "sd-table rc-judged" });
  const release = h("button", { type: "button", class: "sd-quiet", hidden: true, onclick: onRelease }, t("detail.unpin"));
  const element = h("div", { class: "rc-detail", role: "group", "aria-label": t("detail.hint") }, h("div", { class: "rc-detailbar" }, title, release), said,
    h("div", { class: "sd-tablewrap", tabindex: 0, role: "region", "aria-label": t("detail.verdict") }, table));
  let shownKey = "";

  /** A probability short enough for a column. */
  const p = (value, digits = 2) => (value == null ? NONE : value > 0 && value < 0.001 ? "< 0.001" : num(value, lang, digits));

  /** The guesses of the round before a verification, those after a rejected one too. */
  function guesses(lane, pass) {
    const drafted = [];
    for (let i = pass.index - 1; i >= 0 && lane.passes[i].kind === "draft"; i--)
      drafted.unshift(...lane.passes[i].tokens.map((token) => ({ by: lane.passes[i].by, ...token })));
    return drafted;
  }

  function rows(lane, pass) {
    if (pass.kind !== "verify") return pass.tokens.map((token, i) => ({ place: i + 1, ...token, by: token.by ?? pass.by }));
    const judged = pass.tokens.map((token) => ({ ...token }));
    let place = 0;
    for (const token of judged) { token.place = token.origin === "supplied" ? place : ++place; }
    const left = guesses(lane, pass).slice(place - (judged.at(-1)?.origin === "bonus" ? 1 : 0));
    return [...judged, ...left.map((token, i) => ({ ...token, place: place + i + 1, origin: "not_judged" }))];
  }

  return {
    element,
    /** Keep room for the tallest table of this run. */
    reserve(places) { element.style.setProperty("--rc-rows", places); },
    /** `current`: the sentence under the playback already says what this pass was. */
    show(lane, pass, { pinned = false, current = false } = {}) {
      const key = pass ? `${lane.name} ${pass.index} ${pinned} ${current}` : "";
      if (key === shownKey) return;
      shownKey = key;
      release.hidden = !pinned;
      element.dataset.empty = String(!pass);
      if (!pass) {
        title.textContent = "";
        said.textContent = t("detail.hint");
        table.replaceChildren();
        return;
      }
      const where = pass.kind === "prefill" ? t("detail.head_prompt") : lane.name === "plain" ? t("detail.head_plain", { i: pass.index }) : t("detail.head_speculative", { round: pass.round });
      const span = t("detail.time", { start: duration(pass.start, lang, 4), end: duration(pass.end, lang, 4) });
      title.replaceChildren(h("b", {}, where), h("span", {}, [span, pass.rows && !(pass.inferred && pass.kind !== "prefill") ? t("detail.rows", { rows: num(pass.rows, lang, 6) }) : null].filter(Boolean).join(" · ")));
      const [name, values] = about(pass, lang);
      said.textContent = current ? "" : t(`pass.${name}`, values);
      const list = rows(lane, pass);
      const judged = list.some((token) => token.u != null);
      const columns = pass.inferred ? ["place", "token", ...(list.some((token) => token.p != null) ? ["p"] : []), "verdict"] : { verify: ["place", "token", "by", "p", "q", "ratio", ...(judged ? ["u"] : []), "verdict"], draft: ["place", "token", "by", "q", "verdict"] }[pass.kind] ?? ["place", "token", "verdict"];
      const cells = (token) => ({
        place: String(token.place),
        token: h("span", { class: "rc-token", dataset: { origin: token.origin === "not_judged" ? "drafted" : token.origin } }, shown(token)),
        by: token.by ? t(`detail.by_${token.by}`) : "",
        p: p(token.p), q: token.q == null ? "" : p(token.q),
        ratio: token.p != null && token.q ? p(token.p / token.q, 3) : "",
        u: token.u == null ? "" : p(token.u, 3),
        verdict: t(`detail.${token.origin}`),
      });
      table.replaceChildren(
        h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, t(`detail.${column}`))))),
        h("tbody", {}, list.map((token) => { const all = cells(token); return h("tr", { dataset: { origin: token.origin } }, columns.map((column) => h("td", {}, all[column]))); })));
    },
  };
}
