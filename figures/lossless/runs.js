// The counted runs of real models: for each outcome its exact probability as a line, what plain and speculative
// decoding wrote as two bars, and the test of fit for both.

import { h, s } from "#sd/dom.js";
import { fixed, num } from "#sd/format.js";
import { band, fit } from "./model.js";

const ROW = 34;

export function createRuns({ f, model, record, chance }) {
  const { on, t, lang } = f;
  const chart = s("svg", { role: "img", "aria-label": t("runs.alt") });
  const verdict = h("p", {}), context = h("p", { class: "sd-note" });
  const shown = (text) => text.trim().replaceAll("\n", "⏎") || "␣";

  function draw(width) {
    const found = record.experiments[model.get("experiment")];
    const rows = found[model.get("length")];
    const sum = (lane) => rows.reduce((total, row) => total + row[lane], 0);
    const p = rows.map((row) => row.p), n = record.runs;
    const [plain, speculative] = ["plain", "speculative"].map((lane) => fit(rows.map((row) => row[lane]), p));
    context.textContent = t("runs.context", { question: found.question, beginning: found.beginning, alpha: fixed(found.alpha, 2, lang), k: record.sampling.top_k, runs: num(sum("plain"), lang, 7) });
    const say = (x) => t("runs.fit", { distance: num(x.distance, lang), pvalue: x.pvalue === null ? "–" : chance(x.pvalue, lang) });
    verdict.textContent = t("runs.verdict", { plain: say(plain), speculative: say(speculative), band: num(band(n, p.filter((x) => x > 0).length), lang) });

    const L = Math.min(170, width * 0.34), R = 64;
    const most = Math.max(...rows.flatMap((row) => [row.p, row.plain / n, row.speculative / n])) || 1;
    const x = (v) => L + (v / most) * (width - L - R);
    const room = Math.floor(L / 8);
    chart.setAttribute("width", width);
    chart.setAttribute("height", rows.length * ROW + 6);
    chart.replaceChildren(...rows.map((row, i) => {
      const y = i * ROW + 6, name = [...shown(row.text)];
      return s("g", {},
        s("text", { x: L - 10, y: y + 15, "text-anchor": "end", class: "lo-token" }, name.length > room ? `${name.slice(0, room - 1).join("")}…` : name.join("")),
        s("rect", { x: L, y, width: Math.max(1, x(row.plain / n) - L), height: 10, rx: 1.5, style: "fill: var(--sd-target)" }),
        s("rect", { x: L, y: y + 12, width: Math.max(1, x(row.speculative / n) - L), height: 10, rx: 1.5, style: "fill: var(--sd-accepted)" }),
        s("line", { x1: x(row.p), x2: x(row.p), y1: y - 3, y2: y + 25, "stroke-width": 2, style: "stroke: var(--sd-ink)" }),
        s("text", { x: width - R + 8, y: y + 9, class: "lo-small" }, num(row.plain, lang, 7)),
        s("text", { x: width - R + 8, y: y + 22, class: "lo-small" }, num(row.speculative, lang, 7)));
    }));
  }

  const swatch = (colour) => h("span", { class: "sd-swatch", style: { background: `var(--sd-${colour})` } });
  const block = (select, segments) => {
    const options = record.experiments.map((x, i) => [i, `“${x.beginning.replace(/\s+/g, " ")} …”`]);
    const pick = select(on, model, "experiment", { label: t("runs.choose"), options });
    return h("div", { class: "lo-block" }, h("h4", {}, t("runs.title")), context,
      h("div", { class: "sd-controls" }, options.length > 1 ? pick : null,
        segments(on, model, "length", { label: t("runs.count"), options: [["next", t("runs.next")], ["pair", t("runs.pair")]] })),
      h("ul", { class: "sd-legend" }, h("li", {}, swatch("target"), t("runs.plain")), h("li", {}, swatch("accepted"), t("runs.speculative")), h("li", {}, h("b", {}, "│"), t("runs.exact"))),
      chart, verdict,
      h("p", { class: "sd-note" }, t("runs.made", { target: record.pair.target.split(" ")[0].split("/").at(-1), draft: record.pair.draft, device: record.device.name, date: record.created.slice(0, 10) }), " ", h("code", {}, "python -m kernels lossless")));
  };
  return { draw, block };
}
