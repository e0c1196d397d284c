// Draws `lossless`: five rules judge the same guesses. Left, the tokens that the chosen rule wrote, beside p and
// beside what the rule converges to. Right, every rule's distance to p as draws are added (log-log), the band
// that honest draws keep to, and each rule's exact bias. Below, the proof line by line with the reader's own
// numbers, and counted runs of real models. The draws are made by `store.js`.

import { frame } from "#sd/frame.js";
import { button, numberField, segments, select, textField } from "#sd/controls.js";
import { frameThrottle, h, s, uid } from "#sd/dom.js";
import { fixed, num, percent } from "#sd/format.js";
import { update } from "#sd/model.js";
import { clamp, linear, log, logTicks } from "#sd/scale.js";
import { acceptance, distance, kept, missing, residual, tokensOf, weightsOf } from "#sd/distribution.js";
import { DRAWS, RULES, band, bias, fit, limit, puzzle } from "./model.js";
import { storeOf } from "./store.js";
import { createRuns } from "./runs.js";

const LINES = 5;
const PRESETS = {
  text: { tokens: "the|a|this", p: "50,30,20", q: "70,20,10" },
  close: { tokens: "the|a|this", p: "50,30,20", q: "53,28,19" },
  report: { tokens: "x|y", p: "60,40", q: "80,20" },
  far: { tokens: "the|a|this|one", p: "40,30,20,10", q: "5,15,20,60" },
};
const FLOOR = 1e-4; // the least distance on the chart
const HEIGHT = 300;
const DASH = { exact: null, always: null, equal: null, again: "7 4", greedy: "2 3" };

const STYLE = `
.lo-stage { display: flex; flex-wrap: wrap; gap: 8px 20px; }
.lo-stage p { margin: 0 0 2px; }
.lo-row { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 8px 0; }
.lo-rule { margin: 6px 0 10px !important; }
.lo-block { border-top: 1px solid var(--sd-line); margin-top: 16px; padding-top: 12px; }
.lo-block h4 { margin: 0 0 6px; font-size: var(--sd-size-m); font-weight: 650; }
.lo-proof { padding-inline-start: 1.4em; margin: 8px 0; display: grid; gap: 5px; font-variant-numeric: tabular-nums; }
.lo-proof[hidden] { display: none; }
.lo-proof .lo-sum { font-weight: 650; }
.sd-figure svg .lo-name { font-size: 12px; paint-order: stroke; stroke: var(--sd-raised); stroke-width: 3px; }
.sd-figure svg .lo-small { font-size: 11px; }
.sd-figure svg .lo-token { font-size: 13px; font-weight: 600; fill: var(--sd-ink); }`;

const chance = (value, lang) => (value < 1e-4 ? "< 0.0001" : num(value, lang, 2));

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const store = storeOf(model);
  const { record } = model.get("data");
  const read = () => {
    const tokens = tokensOf(model.get("tokens"));
    return { tokens, p: weightsOf(model.get("p"), tokens.length), q: weightsOf(model.get("q"), tokens.length), rule: model.get("rule") };
  };
  let now = read(), width = 0;
  const blank = () => Object.fromEntries(RULES.map((rule) => [rule, now.tokens.map(() => 0)]));
  const counts = () => (store.counts && store.counts.exact.length === now.tokens.length ? store.counts : blank());
  f.badge("live", ["recorded", record.created.slice(0, 10)]);

  // --- the stage -----------------------------------------------------------------------------------
  const rules = segments(on, model, "rule", { label: t("control.rule"), options: RULES.map((rule) => [rule, t(`rule.${rule}`)]) });
  const about = h("p", { class: "sd-note lo-rule" });
  const bars = s("svg", { role: "img", "aria-label": t("alt_bars"), height: HEIGHT });
  const chart = s("svg", { role: "img", "aria-label": t("alt_chart"), height: HEIGHT });
  const left = h("div", {}, h("p", { class: "sd-note" }, t("note.bars")), bars), right = h("div", {}, h("p", { class: "sd-note" }, t("note.chart")), chart);
  const add = (n) => button(on, t("control.add", { n: num(n, lang, 7) }), () => update(model, { n: Math.min(DRAWS, model.get("n") + n) }));
  const stop = button(on, t("control.stop"), () => update(model, { n: store.n }));
  const row = h("div", { class: "lo-row", role: "group", "aria-label": t("control.draws") },
    add(100), add(1000), add(10_000), button(on, t("control.all", { n: num(DRAWS, lang, 7) }), () => update(model, { n: DRAWS }), { primary: true }),
    stop, button(on, t("ui.restart"), () => update(model, { n: 0 }), { quiet: true }));
  f.style(STYLE);
  f.stage.append(rules, about, h("div", { class: "lo-stage" }, left, right), row);

  const hatch = uid("hatch");
  function drawBars(w) {
    const { tokens, p, rule } = now;
    const found = counts()[rule], to = limit(rule, now.p, now.q), n = store.n;
    const L = 34, TOP = 14, BASE = HEIGHT - 46;
    const most = Math.min(1, Math.ceil(Math.max(...p, ...to, ...(n ? found.map((c) => c / n) : [0])) * 10 + 0.4) / 10);
    const y = linear([0, most], [BASE, TOP]);
    const each = (w - L) / tokens.length, bar = Math.min(70, each * 0.56);
    const honest = rule === "exact";
    const parts = [s("defs", {}, s("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 6, height: 6, style: "fill: var(--sd-rejected-soft)" }), s("rect", { width: 2, height: 6, style: "fill: var(--sd-rejected)" })))];
    for (let v = 0; v <= most + 1e-9; v += most > 0.5 ? 0.2 : 0.1)
      parts.push(s("line", { x1: L, x2: w, y1: y(v), y2: y(v), style: `stroke: var(--sd-line${v === 0 ? "-strong" : ""})` }), s("text", { x: L - 6, y: y(v) + 4, "text-anchor": "end", class: "lo-small" }, num(v, lang, 2)));
    tokens.forEach((token, i) => {
      const x = L + each * (i + 0.5), share = n ? found[i] / n : 0;
      if (n) {
        parts.push(s("rect", { x: x - bar / 2, width: bar, y: y(share), height: BASE - y(share), fill: honest ? null : `url(#${hatch})`, style: honest ? "fill: var(--sd-accepted); opacity: 0.75" : null }));
        const spread = 1.96 * Math.sqrt((share * (1 - share)) / n);
        parts.push(s("line", { x1: x, x2: x, y1: y(Math.min(most, share + spread)), y2: y(Math.max(0, share - spread)), "stroke-width": 1.5, style: "stroke: var(--sd-ink)" }));
      }
      // Where the rule ends up, and where it should.
      parts.push(s("line", { x1: x - bar / 2 - 7, x2: x + bar / 2 + 7, y1: y(p[i]), y2: y(p[i]), "stroke-width": 3, style: "stroke: var(--sd-target)" }),
        s("text", { x: x - bar / 2 - 9, y: y(p[i]) + 4, "text-anchor": "end", class: "lo-small", style: "fill: var(--sd-target-ink); font-weight: 700" }, "p"));
      if (!honest && Math.abs(to[i] - p[i]) > 1e-9)
        parts.push(s("path", { d: `M${x + bar / 2 + 2},${y(to[i])} l8,-5 v10 z`, style: "fill: var(--sd-ink)" }), s("line", { x1: x - bar / 2, x2: x + bar / 2, y1: y(to[i]), y2: y(to[i]), "stroke-width": 1.5, style: "stroke: var(--sd-ink); stroke-dasharray: 3 3" }));
      const room = Math.max(3, Math.floor(each / 8.2)), name = [...token];
      parts.push(s("text", { x, y: BASE + 18, "text-anchor": "middle", class: "lo-token" }, name.length > room ? `${name.slice(0, room - 1).join("")}…` : token),
        s("text", { x, y: BASE + 35, "text-anchor": "middle", class: "lo-small" }, n ? num(share, lang, each < 60 ? 2 : 3) : "–"));
    });
    bars.setAttribute("width", w);
    bars.replaceChildren(...parts);
  }

  function drawChart(w) {
    const L = 52, R = w < 420 ? 74 : 104, TOP = 14, BASE = HEIGHT - 46;
    const x = log([10, DRAWS], [L, w - R]), y = log([FLOOR, 1], [BASE, TOP]);
    const at = (n, v) => `${x(clamp(n, 10, DRAWS)).toFixed(1)},${y(clamp(v, FLOOR, 1)).toFixed(1)}`;
    const outcomes = now.p.filter((v) => v > 0).length;
    const edge = [10, 100, 1e3, 1e4, 1e5, 1e6].map((n) => at(n, band(n, outcomes)));
    const parts = [s("path", { d: `M${edge.join("L")}L${x(DRAWS)},${BASE}L${L},${BASE}Z`, style: "fill: var(--sd-accepted-soft)" })];
    for (const v of logTicks(FLOOR, 1)) parts.push(s("line", { x1: L, x2: w - R, y1: y(v), y2: y(v), style: "stroke: var(--sd-line)" }), s("text", { x: L - 6, y: y(v) + 4, "text-anchor": "end", class: "lo-small" }, num(v, lang, 1)));
    for (const n of logTicks(10, DRAWS)) if (w > 480 || Math.round(Math.log10(n)) % 2 === 0) parts.push(s("line", { x1: x(n), x2: x(n), y1: BASE, y2: BASE + 4, style: "stroke: var(--sd-line-strong)" }), s("text", { x: x(n), y: BASE + 17, "text-anchor": "middle", class: "lo-small" }, num(n, lang, 7)));
    parts.push(s("text", { x: (L + w - R) / 2, y: BASE + 36, "text-anchor": "middle" }, t("axis.n")),
      ...t("mark.band").split(w < 420 ? /(?<=[,，]) ?/ : /$/).map((line, i, lines) => s("text", { x: L + 6, y: BASE - 8 - 14 * (lines.length - 1 - i), class: "lo-small", style: "fill: var(--sd-accepted-ink)" }, line)));
    const path = [...store.path, ...(store.n >= 10 && store.n !== store.path.at(-1)?.[0] ? [[store.n, counts()]] : [])].filter(([, c]) => c.exact.length === now.tokens.length);
    const labels = [];
    // Chosen last, so that it lies on top. `always` and `equal` make the same draws: one line, both names.
    for (const rule of [...RULES.filter((r) => r !== now.rule && !(r === "equal") && !(r === "always" && now.rule === "equal")), now.rule]) {
      const away = bias(rule, now.p, now.q), chosen = rule === now.rule, honest = rule === "exact";
      const colour = honest ? "accepted" : "rejected";
      const points = path.map(([n, c]) => at(n, distance(c[rule].map((v) => v / n), now.p)));
      if (away > FLOOR) parts.push(s("line", { x1: L, x2: w - R, y1: y(away), y2: y(away), style: `stroke: var(--sd-${colour}); stroke-dasharray: ${DASH[rule] ?? "none"}; opacity: 0.45` }));
      if (points.length > 1) parts.push(s("path", { d: `M${points.join("L")}`, fill: "none", "stroke-width": chosen ? 3 : 1.5, style: `stroke: var(--sd-${colour}); stroke-dasharray: ${DASH[rule] ?? "none"}` }));
      if (points.length) { const [px, py] = points.at(-1).split(","); parts.push(s("circle", { cx: px, cy: py, r: chosen ? 4.5 : 3, style: `fill: var(--sd-${colour})` })); }
      const names = rule === "always" || rule === "equal" ? `${t("short.always")} = ${t("short.equal")}` : t(`short.${rule}`);
      labels.push({ text: names, y: away > FLOOR ? y(away) : BASE - (honest ? 0 : 14), colour, chosen });
    }
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((label, i) => { if (i) label.y = Math.max(label.y, labels[i - 1].y + 14); });
    for (let i = labels.length - 1, floor = BASE; i >= 0; i--, floor = labels[i + 1].y - 14) labels[i].y = Math.min(labels[i].y, floor);
    parts.push(...labels.map((label) => s("text", { x: w - R + 6, y: label.y + 4, class: "lo-name", style: `fill: var(--sd-${label.colour}-ink); font-weight: ${label.chosen ? 700 : 400}` }, label.text)));
    chart.setAttribute("width", w);
    chart.replaceChildren(...parts);
  }

  // --- the proof -------------------------------------------------------------------------------------
  const tokenButtons = h("div", { class: "lo-row" });
  const proofStart = h("p", { class: "sd-note" }, t("proof.start"));
  const proof = h("ol", { class: "lo-proof", "aria-live": "polite" });
  const step = (d) => update(model, { line: clamp(model.get("line") + d, 0, LINES) });
  const back = button(on, t("proof.back"), () => step(-1)), next = button(on, t("proof.next"), () => step(1), { primary: true });
  const proofBlock = h("div", { class: "lo-block" }, h("h4", {}, t("proof.title")), tokenButtons, proofStart, proof, h("div", { class: "lo-row" }, back, next));
  function drawProof() {
    const { tokens, p, q } = now;
    const i = Math.min(model.get("token"), tokens.length - 1), shown = model.get("line");
    if (tokenButtons.dataset.tokens !== tokens.join("|")) {
      tokenButtons.dataset.tokens = tokens.join("|");
      tokenButtons.replaceChildren(h("span", { class: "sd-note" }, t("proof.of")), ...tokens.map((token, j) => h("button", { type: "button", onclick: () => update(model, { token: j }) }, token)));
    }
    tokenButtons.querySelectorAll("button").forEach((b, j) => b.setAttribute("aria-pressed", String(i === j)));
    const r = (x) => num(x, lang, 4);
    const alpha = acceptance(p, q), both = kept(p, q)[i], short = missing(p, q)[i];
    const values = { token: tokens[i], p: r(p[i]), q: r(q[i]), stays: q[i] > 0 ? r(Math.min(1, p[i] / q[i])) : "–", both: r(both), refused: r(1 - alpha), residual: r(alpha < 1 - 1e-9 ? residual(p, q)[i] : 0), short: r(short), sum: r(both + short) };
    const keys = ["offer", q[i] > 0 ? "stay" : "never", "refuse", alpha < 1 - 1e-9 ? "supply" : "nothing", "sum"];
    proof.replaceChildren(...keys.slice(0, shown).map((key) => h("li", { class: key === "sum" ? "lo-sum" : null }, t(`proof.${key}`, values))));
    proof.hidden = shown === 0;
    proofStart.hidden = shown > 0;
    back.disabled = shown === 0;
    next.disabled = shown === LINES;
  }

  // --- words ---------------------------------------------------------------------------------------
  function describe() {
    const { p, q, rule } = now;
    const away = bias(rule, p, q), n = store.n;
    const values = { rule: t(`rule.${rule}`), bias: num(away, lang), n: num(n, lang, 7) };
    const sentences = [];
    if (n === 0) sentences.push(t("say.none", values));
    else {
      const found = fit(counts()[rule], p), edge = band(n, p.filter((x) => x > 0).length);
      Object.assign(values, { distance: num(found.distance, lang), band: num(edge, lang) });
      sentences.push(t(found.distance <= edge ? "say.inside" : "say.outside", values));
      if (found.pvalue !== null) sentences.push(t("say.fit", { pvalue: chance(found.pvalue, lang) }));
    }
    sentences.push(t(away > 1e-9 ? "say.biased" : "say.unbiased", values));
    return sentences.join(lang === "zh" ? "" : " ");
  }
  function rows() {
    const { tokens, p, q, rule } = now;
    const n = store.n, all = counts(), to = limit(rule, p, q);
    return [["rule", "distance", "pvalue", "bias"].map((c) => t(`table.${c}`)),
      ...RULES.map((name) => { const found = fit(all[name], p); return [t(`rule.${name}`), n ? num(found.distance, lang) : "–", found.pvalue === null ? "–" : chance(found.pvalue, lang), num(bias(name, p, q), lang)]; }),
      ["token", "p", "observed", "limit"].map((c) => t(`table.${c}`)),
      ...tokens.map((token, i) => [token, fixed(p[i], 4, lang), n ? fixed(all[rule][i] / n, 4, lang) : "–", fixed(to[i], 4, lang)])];
  }

  // --- drawing -------------------------------------------------------------------------------------
  const real = createRuns({ f, model, record, chance });
  let ran = false;
  function draw() {
    now = read();
    f.say(describe());
    f.table(rows(), t("table.caption"));
    const text = t(`about.${now.rule}`);
    if (about.textContent !== text) about.textContent = text;
    const running = store.n < model.get("n");
    stop.hidden = !running;
    if (ran && !running) f.announce(describe());
    ran = running;
    drawProof();
    if (puzzle(now.p, now.q)) f.solve();
    if (width === 0) return;
    const [narrow, broad] = width >= 720 ? [Math.round(width * 0.38), width - Math.round(width * 0.38) - 20] : [width, width];
    left.style.width = `${narrow}px`;
    right.style.width = `${broad}px`;
    drawBars(narrow);
    drawChart(broad);
    real.draw(width);
  }
  const redraw = frameThrottle(draw);
  on.add(redraw.cancel);
  on.add(store.subscribe(redraw.request));
  const aim = frameThrottle(() => { const { p, q } = read(); store.aim(p, q, model.get("seed"), model.get("n")); redraw.request(); });
  on.add(aim.cancel);
  for (const name of ["tokens", "p", "q", "n", "seed"]) { model.on(`change:${name}`, aim.request); on.add(() => model.off(`change:${name}`, aim.request)); }
  for (const name of ["rule", "line", "token", "experiment", "length"]) { model.on(`change:${name}`, redraw.request); on.add(() => model.off(`change:${name}`, redraw.request)); }
  on.resize(f.stage, (w) => { width = w; draw(); });

  // --- controls ------------------------------------------------------------------------------------
  const presets = Object.entries(PRESETS).map(([id, values]) => {
    const choose = button(on, t(`preset.${id}`), () => update(model, values));
    on.follow(model, "*", () => choose.setAttribute("aria-pressed", String(Object.entries(values).every(([k, v]) => model.get(k) === v))));
    return choose;
  });
  const shares = h("p", { class: "sd-note" });
  on.follow(model, ["tokens", "p", "q"], () => {
    const { tokens, p, q } = read();
    shares.textContent = t("note.shares", { p: tokens.map((x, i) => `${x} ${percent(p[i], lang, 1)}`).join(" · "), q: tokens.map((x, i) => `${x} ${percent(q[i], lang, 1)}`).join(" · ") });
  });
  f.controls.append(
    h("div", { class: "sd-control" }, h("span", { class: "sd-label" }, t("control.presets")), h("div", { class: "lo-row", style: { margin: 0 } }, presets)),
    numberField(on, model, "seed", { label: t("ui.seed"), width: "5.5em" }),
    textField(on, model, "tokens", { label: t("control.tokens") }), textField(on, model, "p", { label: t("control.p") }), textField(on, model, "q", { label: t("control.q") }));
  f.controls.after(shares, proofBlock, real.block(select, segments));
  aim.request();
  draw();
  return f.end;
}
