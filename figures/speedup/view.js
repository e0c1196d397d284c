// Draws `speedup`: above, the speed-up over m for the chosen α with a faint family of other α, the line of
// plain decoding, a marker to drag, the best m and recorded races; below, on the same m axis, the map over m
// and α with lines of equal speed-up and the ridge of best m. Controls set the draft, the machine and the batch;
// presets mirror reports of losses; recorded races lend their α, c and v.

import { frame } from "#sd/frame.js";
import { button, numberField, segments, select, slider } from "#sd/controls.js";
import { frameThrottle, h, s, token } from "#sd/dom.js";
import { fixed, num, percent, times } from "#sd/format.js";
import { update } from "#sd/model.js";
import { clamp, linear } from "#sd/scale.js";
import { embedChart, near } from "#sd/chart.js";
import { M_MAX, NAMES, best, breakEven, expectedTokens, puzzle, rounds } from "./model.js";

const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const FAMILY = [0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95];
const LEVELS = [1, 1.5, 2, 3, 5, 8];
// The borders and heights of chart.py.
const BORDER = { left: 58, right: 46, top: 14 };
const LINES = { top: BORDER.top, bottom: 300 - 26 };
const MAP = { top: 300 + BORDER.top, bottom: 570 - 46 };
const HEIGHT = 570;
const ROWS = 40;

const STYLE = `
.su-chart { position: relative; }
.su-names text { paint-order: stroke; stroke: var(--sd-raised); stroke-width: 3px; dominant-baseline: middle; }
.su-presets { flex-basis: 100%; }
.su-row { display: flex; gap: 6px; flex-wrap: wrap; }
.su-runs { list-style: none; margin: 4px 0 0; padding: 0; display: grid; gap: 6px; }
.su-runs li { display: flex; gap: 4px 12px; flex-wrap: wrap; align-items: baseline; font-size: var(--sd-size-s); color: var(--sd-ink-2); }
.su-runs b { color: var(--sd-ink); font-weight: 600; }
.su-note { border-inline-start: 3px solid var(--sd-rejected); padding-inline-start: 12px; margin: 8px 0 !important; max-width: 76ch; font-size: var(--sd-size-s); color: var(--sd-ink-2); }
.su-note[data-kind="example"] { border-color: var(--sd-accepted); }
.su-note:empty { display: none; }`;

/** A colour of the design as [r, g, b]. */
const rgb = (element, name) => {
  const hex = token(element, name).slice(1);
  const long = hex.length === 3 ? [...hex].map((x) => x + x).join("") : hex;
  return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16));
};

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const data = model.get("data");
  const state = () => Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
  const defaults = Object.fromEntries(NAMES.map((name) => [name, model.get("schema")[name].default]));
  f.badge("ideal", ...(data.runs.length ? [["recorded", t("badge.runs")]] : []));

  // --- the stage -----------------------------------------------------------------------------------
  const chartBox = h("div", { style: { height: `${HEIGHT}px` } });
  const dot = () => s("g", { style: "cursor: grab; touch-action: none; pointer-events: all" },
    s("circle", { r: 22, fill: "transparent" }), s("circle", { r: 9, "stroke-width": 3, style: "fill: var(--sd-target); stroke: var(--sd-raised)" }));
  const stem = s("line", { "stroke-width": 1.5, style: "stroke: var(--sd-target); stroke-dasharray: 2 3", y2: MAP.bottom });
  const flag = s("g", {}, s("path", { d: "M0,-4 l-6,-10 h12 z", style: "fill: var(--sd-ink)" }), s("text", { y: -19, "text-anchor": "middle", style: "fill: var(--sd-ink); font-weight: 600; paint-order: stroke; stroke: var(--sd-raised); stroke-width: 4px" }));
  const onLines = dot(), onMap = dot();
  const names = s("g", { class: "su-names" }); // of lines; Bokeh would cut text at the frame
  const overlay = s("svg", { style: "position: absolute; inset: 0; width: 100%; height: 100%; pointer-events: none", "aria-hidden": "true" }, names, stem, flag, onLines, onMap);
  f.style(STYLE);
  f.stage.append(
    h("p", { class: "sd-note" }, t("note.chart")),
    h("div", { class: "su-chart", role: "img", "aria-label": t("alt") }, chartBox, overlay),
    h("p", { class: "sd-note" }, t("note.map")));

  // --- controls ------------------------------------------------------------------------------------
  const presets = h("div", { class: "sd-control su-presets" }, h("span", { class: "sd-label" }, t("control.presets")),
    h("div", { class: "su-row" }, Object.keys(data.presets).map((id) => {
      const choose = button(on, t(`preset.${id}.name`), () => update(model, { ...defaults, ...data.presets[id] }));
      on.follow(model, "*", () => choose.setAttribute("aria-pressed", String(chosen() === id)));
      return choose;
    })));
  function chosen() {
    const p = state();
    return Object.keys(data.presets).find((id) => Object.entries({ ...defaults, ...data.presets[id] }).every(([k, v]) => p[k] === v));
  }
  const story = h("p", { class: "su-note", "aria-live": "polite" });
  const custom = h("div", { style: { display: "contents" } },
    numberField(on, model, "custom_tflops", { label: t("control.custom_tflops") }),
    numberField(on, model, "custom_gbs", { label: t("control.custom_gbs") }));
  const growth = slider(on, model, "growth", { label: t("control.growth"), format: (x) => fixed(x, 2, lang), wide: false });
  const machine = h("div", { style: { display: "contents" } },
    select(on, model, "hardware", { label: t("control.hardware"), options: [...Object.entries(data.hardware).map(([id, x]) => [id, x.name]), ["custom", t("ui.custom")]] }), custom,
    slider(on, model, "batch", { label: t("control.batch"), values: BATCHES, format: (x) => num(x, lang, 4), wide: false }));
  const share = (name) => slider(on, model, name, { label: t(`control.${name}`), format: (x) => percent(x, lang) });
  const beyond = h("details", {}, h("summary", {}, t("control.beyond")),
    h("div", { class: "sd-controls" },
      segments(on, model, "verify", { label: t("control.verify"), options: [["roofline", t("control.verify_roofline")], ["growth", t("control.verify_growth")]] }),
      segments(on, model, "corner", { label: t("control.corner"), options: [["sharp", t("control.corner_sharp")], ["soft", t("control.corner_soft")]] }),
      share("bandwidth_share"), share("flops_share")),
    h("p", { class: "sd-note" }, t("note.beyond")));
  beyond.open = ["verify", "corner", "bandwidth_share", "flops_share"].some((name) => model.get(name) !== defaults[name]);
  f.controls.append(presets,
    slider(on, model, "alpha", { label: t("control.alpha"), format: (x) => fixed(x, 2, lang) }),
    slider(on, model, "m", { label: t("control.m") }),
    slider(on, model, "c", { label: t("control.c"), format: (x) => fixed(x, 3, lang) }),
    slider(on, model, "overhead", { label: t("control.overhead"), format: (x) => fixed(x, 2, lang) }),
    machine, growth);
  f.controls.before(story);

  // --- recorded races, and the reader's last one ------------------------------------------------------
  const list = h("ul", { class: "su-runs" });
  const take = (run) => update(model, {
    ...defaults, alpha: round4(run.alpha), c: clamp(round4(run.c), 0, 1), m: clamp(Math.round(run.m), 1, M_MAX),
    verify: "growth", growth: clamp(round4((run.v - 1) / Math.max(1, run.m)), -0.1, 1),
  });
  const round4 = (x) => Math.round(x * 1e4) / 1e4;
  const shorten = (text) => ([...text].length > 48 ? `${[...text].slice(0, 46).join("")}…` : text);
  const runs = h("details", { open: Boolean(model.get("measured")) }, h("summary", {}, t("runs.title")), list, h("p", { class: "sd-note" }, t("runs.why")));
  on.follow(model, "measured", () => {
    const last = model.get("measured");
    const entries = [...(last ? [{ ...last, prompt: t("runs.last") }] : []), ...data.runs];
    list.replaceChildren(...entries.map((run) => h("li", {}, h("b", {}, shorten(run.prompt)),
      h("span", {}, t("runs.numbers", { measured: times(run.measured, lang), formula: times(run.formula, lang), alpha: fixed(run.alpha, 2, lang), c: num(run.c, lang, 2), v: fixed(run.v, 2, lang) })),
      h("button", { type: "button", onclick: () => take(run) }, t("runs.take")))));
    runs.hidden = entries.length === 0;
    if (last) runs.open = true;
  });
  f.controls.after(beyond, runs);

  // --- drawing -------------------------------------------------------------------------------------
  let chart = null, width = 0, drawn = {}; // drawn: what the chart holds now
  const xOf = () => linear([0.5, M_MAX + 0.5], [BORDER.left, width - BORDER.right]);
  const ceiling = (all, p) => Math.max(1.3, best(all).speedup * 1.18, all[p.m - 1].speedup * 1.1);
  const ySpeed = (top) => linear([0, top], [LINES.bottom, LINES.top]);
  const yAlpha = () => linear([0, 1], [MAP.bottom, MAP.top]);
  const alphaFree = (p) => JSON.stringify({ ...p, alpha: 0, m: 0 });

  function drawLines(p, all, top) {
    const range = chart.get("speedups");
    if (range.end !== top) range.end = top;
    const ms = all.map((r) => r.m);
    chart.get("curve").data = { m: ms, s: all.map((r) => r.speedup) };
    const key = `${alphaFree(p)} ${top}`;
    if (drawn.lines === key) return;
    drawn.lines = key;
    const others = FAMILY.map((alpha) => rounds(data, { ...p, alpha }).map((r) => r.speedup));
    chart.get("family").data = { xs: others.map(() => ms), ys: others };
    drawn.family = others.map((ys, i) => [FAMILY[i], ys[M_MAX - 1]]);
    chart.get("runs_lines").data = { x: data.runs.map((r) => r.m), y: data.runs.map((r) => r.measured) };
    chart.get("runs_map").data = { x: data.runs.map((r) => r.m), y: data.runs.map((r) => r.alpha) };
  }

  function drawMap(p) {
    const theme = token(f.root, "--sd-raised");
    const key = `${alphaFree(p)} ${theme}`;
    if (drawn.map === key) return;
    drawn.map = key;
    const [none, gain, loss] = ["--sd-raised", "--sd-accepted", "--sd-rejected"].map((name) => rgb(f.root, name));
    const costs = rounds(data, { ...p, alpha: 1 }).map((r) => r.cost);
    const cells = chart.get("cells");
    const fill = [];
    for (let row = 0; row < ROWS; row++)
      for (let m = 1; m <= M_MAX; m++) {
        const speed = expectedTokens((row + 0.5) / ROWS, m) / costs[m - 1];
        const share = Math.min(1, Math.abs(Math.log(speed)) / Math.log(6)) ** 0.8 * 0.85;
        const to = speed > 1 ? gain : loss;
        fill.push(`rgb(${none.map((x, i) => Math.round(x + (to[i] - x) * share)).join(",")})`);
      }
    cells.data = { ...cells.data, fill };
    const ms = Array.from({ length: M_MAX }, (_, i) => i + 1);
    const rings = LEVELS.map((level) => {
      const points = ms.map((m) => [m, breakEven(data, p, m, level)]).filter(([, alpha]) => alpha !== null && alpha > 0);
      return { level, points };
    }).filter((ring) => ring.points.length > 1);
    chart.get("contours").data = { xs: rings.map((r) => r.points.map((x) => x[0])), ys: rings.map((r) => r.points.map((x) => x[1])), width: rings.map((r) => (r.level === 1 ? 2.5 : 1)) };
    drawn.rings = rings.map(({ level, points }) => [level, ...points.at(-1)]);
    const ridge = Array.from({ length: 201 }, (_, i) => [best(rounds(data, { ...p, alpha: i / 200 })).m, i / 200]);
    chart.get("ridge").data = { m: ridge.map((x) => x[0]), alpha: ridge.map((x) => x[1]) };
  }

  /** Names at the right ends of the lines; those too close to an earlier one give way. */
  function drawNames(top) {
    const end = width - BORDER.right, y = ySpeed(top);
    const texts = [[end, y(1) - 9, t("mark.even"), "end", "var(--sd-rejected-ink)"]];
    const taken = [];
    const put = (x, at, text) => {
      if (taken.some((other) => Math.abs(other - at) < 13)) return;
      taken.push(at);
      texts.push([x, at, text, "start", "var(--sd-ink-2)"]);
    };
    for (const [alpha, last] of drawn.family ?? []) if (last < top) put(end - 2, y(last), `α ${num(alpha, lang)}`);
    for (const [level, m, alpha] of (drawn.rings ?? []).toReversed()) if (m === M_MAX) put(end + 4, yAlpha()(alpha), `${num(level, lang)}×`);
    names.replaceChildren(...texts.map(([x, at, text, anchor, fill]) => s("text", { x, y: at, "text-anchor": anchor, style: `fill: ${fill}` }, text)));
  }

  function drawMarks(p, all, top) {
    const x = xOf()(p.m), y = ySpeed(top)(all[p.m - 1].speedup);
    stem.setAttribute("x1", x); stem.setAttribute("x2", x); stem.setAttribute("y1", y);
    onLines.setAttribute("transform", `translate(${x},${y})`);
    onMap.setAttribute("transform", `translate(${x},${yAlpha()(p.alpha)})`);
    const peak = best(all);
    const bx = xOf()(peak.m);
    flag.setAttribute("transform", `translate(${bx},${Math.max(36, ySpeed(top)(peak.speedup) - (peak.m === p.m ? 10 : 0))})`);
    flag.lastChild.textContent = t("mark.best", { m: peak.m });
    flag.lastChild.setAttribute("text-anchor", bx < 110 ? "start" : bx > width - 110 ? "end" : "middle");
  }

  function sentence(p, all) {
    const here = all[p.m - 1], top = best(all);
    const values = { alpha: fixed(p.alpha, 2, lang), c: num(p.c, lang), m: p.m, tokens: fixed(here.tokens, 2, lang), cost: fixed(here.cost, 2, lang), speedup: times(here.speedup, lang), best: top.m, top: times(top.speedup, lang) };
    const key = top.speedup <= 1 ? "hopeless" : top.m === M_MAX ? "edge" : top.m === p.m ? "best" : here.speedup < 1 ? "loses" : "better";
    return [t("say.here", values), t(`say.${key}`, values)].join(lang === "zh" ? "" : " ");
  }

  function rows(p, all) {
    const top = best(all).m;
    const ms = [...new Set([1, 2, 4, 8, 16, 32, p.m, top])].sort((a, b) => a - b);
    return [["m", "tokens", "v", "cost", "speedup"].map((c) => t(`table.${c}`)),
      ...ms.map((m) => {
        const r = all[m - 1];
        return [m === top ? t("table.best", { m }) : String(m), fixed(r.tokens, 2, lang), fixed(r.v, 2, lang), fixed(r.cost, 2, lang), times(r.speedup, lang)];
      })];
  }

  function draw() {
    const p = state();
    const all = rounds(data, p);
    f.say(sentence(p, all));
    f.table(rows(p, all), t("table.caption"));
    const preset = chosen();
    story.dataset.kind = preset ?? "";
    const text = preset ? t(`preset.${preset}.note`, { speedup: times(all[p.m - 1].speedup, lang) }) : "";
    if (story.textContent !== text) story.textContent = text;
    custom.style.display = p.hardware === "custom" ? "contents" : "none";
    machine.style.display = p.verify === "roofline" ? "contents" : "none";
    growth.hidden = p.verify !== "growth";
    if (puzzle(p, best(all))) f.solve();
    if (width === 0) return;
    const top = ceiling(all, p);
    if (chart) { drawLines(p, all, top); drawMap(p); drawNames(top); }
    drawMarks(p, all, top);
  }
  const redraw = frameThrottle(draw);
  on.add(redraw.cancel);
  for (const name of NAMES) {
    model.on(`change:${name}`, redraw.request);
    on.add(() => model.off(`change:${name}`, redraw.request));
  }
  on.resize(f.stage, (w) => { width = w; draw(); });

  // --- dragging ------------------------------------------------------------------------------------
  const place = (event) => { const box = overlay.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  for (const [handle, move] of [
    [onLines, (x) => model.set("m", clamp(Math.round(xOf().invert(x)), 1, M_MAX))],
    [onMap, (x, y) => {
      model.set("m", clamp(Math.round(xOf().invert(x)), 1, M_MAX));
      model.set("alpha", clamp(Math.round(yAlpha().invert(y) * 100) / 100, 0, 1));
    }],
  ]) {
    // touch-action does not reach every browser's SVG: without this the page would pan instead.
    on.listen(handle, "touchstart", (event) => event.preventDefault(), { passive: false });
    on.listen(handle, "pointerdown", (event) => { handle.setPointerCapture(event.pointerId); event.preventDefault(); });
    on.listen(handle, "pointermove", (event) => { if (handle.hasPointerCapture(event.pointerId)) move(...place(event)); });
    on.listen(handle, "pointerup", () => model.save_changes());
  }

  near(f.root, on)
    .then(() => embedChart(on, model.get("chart"), chartBox))
    .then((ready) => { chart = ready; drawn = {}; redraw.request(); })
    .catch((reason) => { console.error(reason); chartBox.replaceChildren(h("p", { class: "sd-error" }, t("ui.error_figure", { reason: reason.message }))); });
  const recolour = new MutationObserver(() => { drawn.map = null; redraw.request(); });
  recolour.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  on.add(() => recolour.disconnect());
  const media = matchMedia("(prefers-color-scheme: dark)");
  on.listen(media, "change", () => { drawn.map = null; redraw.request(); });
  on.listen(window, "beforeprint", () => { drawn.map = null; draw(); }); // paper does not wait for a frame

  return f.end;
}
