// Draws `accept`: for each token a bar of q (amber edge) beside one of p (blue edge). What both share is
// kept (green); what q has too much is refused (red, hatched); what p is short of is supplied after a refusal
// (violet, dotted). Tops are dragged. Draws fall into the bars as dots: first into q, from there into p.
// Below, the three parts as one strip of length 1.

import { frame } from "#sd/frame.js";
import { button, numberField, select } from "#sd/controls.js";
import { frameThrottle, h, s, token as colour, uid } from "#sd/dom.js";
import { fixed, num, percent } from "#sd/format.js";
import { update } from "#sd/model.js";
import { createPlayer, transport } from "#sd/player.js";
import { clamp, linear } from "#sd/scale.js";
import { SIZES, acceptance, kept, missing, moved, residual, textOf, tokensOf, weightsOf } from "#sd/distribution.js";
import { DRAWS, counts, draws, puzzle } from "./model.js";

const HEIGHT = 318, TOP = 34, FLOOR = 262, LEFT = 34;
const PRESETS = {
  text: ["the|a|this", "50,30,20", "70,20,10"],
  same: ["the|a|this", "50,30,20", "50,30,20"],
  disjoint: ["the|a|this|one", "60,40,0,0", "0,0,30,70"],
  never: ["the|a|this|one", "40,30,20,10", "60,40,0,0"],
};
const MORE = ["that", "one", "its", "my", "no", "any"];

const STYLE = `
.ac-plot { position: relative; }
.ac-plot canvas { position: absolute; inset: 0; pointer-events: none; }
.ac-plot svg { position: relative; touch-action: pan-y; }
.ac-knob { cursor: ns-resize; touch-action: none; outline: none; }
.ac-knob:focus-visible .ac-ring { stroke: var(--sd-focus); stroke-width: 3; }
.sd-figure svg .ac-token { font-size: 13px; fill: var(--sd-ink); font-weight: 600; }
.sd-figure svg .ac-value { font-size: 11.5px; fill: var(--sd-ink); font-variant-numeric: tabular-nums; }
.sd-figure svg .ac-small { font-size: 11px; fill: var(--sd-ink-2); }
.ac-row { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }`;

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const { record } = model.get("data");
  const contexts = Object.fromEntries(record.contexts.map((x) => [x.id, x]));
  const ids = { refused: uid("hatch"), supplied: uid("dots") };
  let width = 0, now = read(), made = [];

  function read() {
    const found = contexts[model.get("context")];
    if (found) return { tokens: found.tokens, p: found.p, q: found.q, real: found };
    const tokens = tokensOf(model.get("tokens"));
    return { tokens, p: weightsOf(model.get("p"), tokens.length), q: weightsOf(model.get("q"), tokens.length), real: null };
  }
  /** A token as the eye should read it: the space it carries is not shown. */
  const shown = (token) => token.trim() || "␣";

  // --- the stage -----------------------------------------------------------------------------------
  const plot = s("svg", { role: "group", "aria-label": t("alt"), height: HEIGHT },
    s("defs", {},
      s("pattern", { id: ids.refused, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        s("rect", { width: 6, height: 6, style: "fill: var(--sd-rejected-soft)" }), s("rect", { width: 2, height: 6, style: "fill: var(--sd-rejected)" })),
      s("pattern", { id: ids.supplied, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
        s("rect", { width: 6, height: 6, style: "fill: var(--sd-supplied-soft)" }), s("circle", { cx: 3, cy: 3, r: 1.3, style: "fill: var(--sd-supplied)" }))));
  const canvas = h("canvas", { "aria-hidden": "true" });
  const strip = s("svg", { height: 62, role: "img", "aria-label": t("alt_strip") });
  const context = h("p", { class: "sd-note" });
  f.style(STYLE);
  f.stage.append(context, h("div", { class: "ac-plot" }, plot, canvas), strip);

  let columns = [];
  /** The elements of every token, made anew when their number changes. */
  function build() {
    for (const column of columns) column.group.remove();
    columns = now.tokens.map((_, i) => {
      const rect = (style) => s("rect", { rx: 1.5, style });
      const parts = {
        keptQ: rect("fill: var(--sd-accepted); opacity: 0.75"), refused: s("rect", { fill: `url(#${ids.refused})` }), edgeQ: rect("fill: none; stroke: var(--sd-draft); stroke-width: 2"),
        keptP: rect("fill: var(--sd-accepted); opacity: 0.75"), supplied: s("rect", { fill: `url(#${ids.supplied})` }), edgeP: rect("fill: none; stroke: var(--sd-target); stroke-width: 2"),
      };
      const knobs = { q: knob(i, "q"), p: knob(i, "p") };
      const texts = { token: s("text", { class: "ac-token", "text-anchor": "middle" }), count: s("text", { class: "ac-small", "text-anchor": "middle" }) };
      const letters = ["q", "p"].map((letter) => s("text", { class: "ac-small", "text-anchor": "middle", style: `fill: var(--sd-${letter === "q" ? "draft" : "target"}-ink); font-weight: 700` }, letter));
      const group = s("g", {}, Object.values(parts), Object.values(texts), letters, knobs.q.group, knobs.p.group);
      plot.append(group);
      return { group, parts, knobs, texts, letters };
    });
    plot.dataset.size = now.tokens.length;
  }

  function knob(i, which) {
    const value = s("text", { class: "ac-value", "text-anchor": "middle", y: -14 });
    const group = s("g", { class: "ac-knob", tabindex: 0, role: "slider", "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 100 },
      s("circle", { r: 14, fill: "transparent" }),
      s("circle", { class: "ac-ring", r: 6.5, "stroke-width": 2.5, style: `fill: var(--sd-${which === "q" ? "draft" : "target"})`, stroke: "var(--sd-raised)" }), value);
    const put = (x) => change(which, i, x);
    group.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    group.addEventListener("pointerdown", (event) => { group.setPointerCapture(event.pointerId); group.focus({ preventScroll: true }); event.preventDefault(); });
    group.addEventListener("pointermove", (event) => { if (group.hasPointerCapture(event.pointerId)) put(yOf.invert(event.clientY - plot.getBoundingClientRect().top)); });
    group.addEventListener("pointerup", () => { model.save_changes(); f.announce(describe()); });
    group.addEventListener("keydown", (event) => {
      const at = read()[which][i];
      const to = { ArrowUp: at + 0.01, ArrowRight: at + 0.01, ArrowDown: at - 0.01, ArrowLeft: at - 0.01, PageUp: at + 0.1, PageDown: at - 0.1, Home: 0, End: 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      put(to);
      model.save_changes();
    });
    return { group, value };
  }

  /** The reader moves one entry of p or q; a recorded context becomes the reader's own. */
  function change(which, i, x) {
    const state = read();
    const changes = { [which]: moved(state[which], i, clamp(x, 0, 1)) };
    if (state.real) Object.assign(changes, { tokens: state.tokens.map(shown).join("|"), [which === "p" ? "q" : "p"]: textOf(state[which === "p" ? "q" : "p"]), context: "own" });
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
  }

  const yOf = linear([0, 1], [FLOOR, TOP]);
  const place = (i) => {
    const each = (width - LEFT) / now.tokens.length;
    const bar = Math.min(64, each * 0.36), gap = Math.min(10, each * 0.06);
    const middle = LEFT + each * (i + 0.5);
    return { middle, bar, q: middle - gap / 2 - bar, p: middle + gap / 2, each };
  };
  const box = (rect, x, w, from, to) => {
    rect.setAttribute("x", x); rect.setAttribute("width", w);
    rect.setAttribute("y", yOf(Math.max(from, to))); rect.setAttribute("height", Math.abs(yOf(to) - yOf(from)));
  };

  const axis = s("g", { "aria-hidden": "true" });
  plot.append(axis);
  function drawAxis() {
    axis.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].flatMap((v) => [
      s("line", { x1: LEFT, x2: width, y1: yOf(v), y2: yOf(v), style: `stroke: var(--sd-line${v === 0 ? "-strong" : ""})` }),
      s("text", { x: LEFT - 6, y: yOf(v) + 4, "text-anchor": "end", class: "ac-small" }, num(v, lang, 2))]));
  }

  function drawBars() {
    const common = kept(now.p, now.q);
    columns.forEach(({ parts, knobs, texts, letters }, i) => {
      const at = place(i), [p, q, both] = [now.p[i], now.q[i], common[i]];
      box(parts.keptQ, at.q, at.bar, 0, both); box(parts.refused, at.q, at.bar, both, q); box(parts.edgeQ, at.q, at.bar, 0, q);
      box(parts.keptP, at.p, at.bar, 0, both); box(parts.supplied, at.p, at.bar, both, p); box(parts.edgeP, at.p, at.bar, 0, p);
      for (const [name, x, v] of [["q", at.q, q], ["p", at.p, p]]) {
        const { group, value } = knobs[name];
        group.setAttribute("transform", `translate(${x + at.bar / 2},${yOf(v)})`);
        group.setAttribute("aria-valuenow", Math.round(v * 100));
        group.setAttribute("aria-label", t("control.knob", { which: name, token: shown(now.tokens[i]) }));
        group.setAttribute("aria-valuetext", percent(v, lang, 1));
        value.textContent = at.bar < 30 ? num(v * 100, lang, 2) : percent(v, lang);
      }
      const room = Math.max(3, Math.floor(at.each / 8.2));
      const name = [...shown(now.tokens[i])];
      texts.token.textContent = name.length > room ? `${name.slice(0, room - 1).join("")}…` : name.join("");
      for (const [text, x, y] of [[texts.token, at.middle, FLOOR + 34], [texts.count, at.middle, FLOOR + 51], [letters[0], at.q + at.bar / 2, FLOOR + 15], [letters[1], at.p + at.bar / 2, FLOOR + 15]]) { text.setAttribute("x", x); text.setAttribute("y", y); }
    });
  }

  function drawStrip() {
    const alpha = acceptance(now.p, now.q);
    strip.setAttribute("width", width);
    const x = linear([0, 1], [LEFT, width - 1]);
    const row = (y, label, parts) => [s("text", { x: LEFT - 6, y: y + 15, "text-anchor": "end", style: "font-weight: 700" }, label),
      ...parts.flatMap(([from, to, fill, text]) => (to - from < 1e-6 ? [] : [
        s("rect", { x: x(from), width: x(to) - x(from), y, height: 22, style: fill.startsWith("url") ? null : `fill: ${fill}; opacity: 0.75`, fill: fill.startsWith("url") ? fill : null }),
        x(to) - x(from) > 12 * text.length ** 0.5 + text.length * 5.5 ? s("text", { x: (x(from) + x(to)) / 2, y: y + 15, "text-anchor": "middle", style: "fill: var(--sd-ink); font-weight: 600; paint-order: stroke; stroke: var(--sd-raised); stroke-width: 3px" }, text) : ""]))];
    strip.replaceChildren(
      ...row(4, "q", [[0, alpha, "var(--sd-accepted)", t("strip.kept", { share: fixed(alpha, 2, lang) })], [alpha, 1, `url(#${ids.refused})`, t("strip.refused", { share: fixed(1 - alpha, 2, lang) })]]),
      ...row(34, "p", [[0, alpha, "var(--sd-accepted)", t("strip.kept", { share: fixed(alpha, 2, lang) })], [alpha, 1, `url(#${ids.supplied})`, t("strip.supplied", { share: fixed(1 - alpha, 2, lang) })]]));
  }

  /** The dots of all draws made, and the one on its way. */
  function drawDots() {
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(HEIGHT * ratio) });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${HEIGHT}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    const time = player.time, done = Math.floor(time + 1e-9);
    const ink = colour(f.root, "--sd-ink"), paper = colour(f.root, "--sd-raised");
    const dot = (x, y, r, open) => {
      pen.beginPath();
      pen.arc(x, y, r, 0, 7);
      pen.fillStyle = open ? paper : ink;
      pen.fill();
      pen.strokeStyle = open ? ink : paper;
      pen.lineWidth = 1;
      pen.stroke();
    };
    const cross = (x, y) => { pen.beginPath(); pen.moveTo(x - 3, y - 3); pen.lineTo(x + 3, y + 3); pen.moveTo(x + 3, y - 3); pen.lineTo(x - 3, y + 3); pen.strokeStyle = ink; pen.lineWidth = 1.6; pen.stroke(); };
    // Evenly spread by the golden ratio, so that dots seldom hide one another.
    const aside = (i, bar) => (0.08 + 0.84 * ((i * 0.6180339887) % 1)) * bar;
    const ends = (draw, i) => {
      const g = place(draw.guess), w = place(draw.written);
      return [[g.q + aside(i, g.bar), yOf(draw.height)], [w.p + aside(i, w.bar), yOf(draw.place)]];
    };
    made.slice(0, done).forEach((draw, i) => {
      const [a, b] = ends(draw, i);
      if (draw.accepted) dot(a[0], a[1], 2.2); else cross(...a);
      dot(b[0], b[1], 2.6, !draw.accepted);
    });
    const part = time - done;
    if (done < made.length && part > 1e-6) {
      const draw = made[done], [a, b] = ends(draw, done);
      const ease = (x) => x * x * (3 - 2 * x);
      if (part < 0.4) dot(a[0], TOP - 26 + (a[1] - TOP + 26) * ease(part / 0.4), 5);
      else if (part < 0.6) { if (draw.accepted) dot(a[0], a[1], 5); else cross(...a); }
      else {
        const u = ease((part - 0.6) / 0.4);
        if (!draw.accepted) cross(...a);
        dot(a[0] + (b[0] - a[0]) * u, a[1] + (b[1] - a[1]) * u - (draw.accepted ? 0 : 30 * Math.sin(Math.PI * u)), 5, !draw.accepted);
      }
    }
  }

  // --- words ---------------------------------------------------------------------------------------
  const count = () => Math.floor(player.time + 1e-9);
  function describe() {
    const { tokens, p, q } = now;
    const alpha = acceptance(p, q);
    const listed = (items) => (lang === "zh" || items.length < 2 ? items.join("、") : `${items.slice(0, -1).join(", ")} ${t("say.and")} ${items.at(-1)}`);
    const named = (test) => listed(tokens.filter((_, i) => test(p[i], q[i])).map((token) => t("say.token", { token: shown(token) })));
    const sentences = [t("say.alpha", { alpha: fixed(alpha, 2, lang), share: percent(alpha, lang) })];
    if (alpha > 1 - 1e-9) sentences.push(t("say.same"));
    else if (alpha < 1e-9) sentences.push(t("say.disjoint"));
    else {
      sentences.push(t("say.mixed", { over: named((a, b) => b > a + 1e-9), under: named((a, b) => a > b + 1e-9) }));
      const never = named((a, b) => b === 0 && a > 0);
      if (never) sentences.push(t("say.never", { tokens: never }));
    }
    const n = count();
    if (n) {
      const accepted = made.slice(0, n).filter((draw) => draw.accepted).length;
      sentences.push(t("say.drawn", { n: num(n, lang), kept: num(accepted, lang), refused: num(n - accepted, lang) }));
    }
    return sentences.join(lang === "zh" ? "" : " ");
  }
  function rows() {
    const { tokens, p, q } = now;
    const common = kept(p, q), short = missing(p, q), left = residual(p, q), written = counts(made.slice(0, count()), p.length);
    return [["token", "p", "q", "kept", "missing", "chance", "residual", "written"].map((c) => t(`table.${c}`)),
      ...tokens.map((token, i) => [shown(token), ...[p, q, common, short].map((x) => fixed(x[i], 3, lang)), q[i] > 0 ? percent(Math.min(1, p[i] / q[i]), lang) : "–", fixed(left[i], 3, lang), String(written[i])])];
  }

  // --- drawing -------------------------------------------------------------------------------------
  const player = createPlayer(on, model, { duration: () => DRAWS, rate: () => 0.7 * model.get("speed"), element: f.stage, next: (at, direction) => (direction > 0 ? Math.floor(at + 1e-9) + 1 : Math.ceil(at - 1e-9) - 1) });
  let told = -1;
  function drawTime() {
    if (width > 0) drawDots();
    const n = count();
    if (n === told) return;
    told = n;
    f.say(describe());
    f.table(rows(), t("table.caption"));
    const written = counts(made.slice(0, n), now.p.length);
    columns.forEach(({ texts }, i) => { texts.count.textContent = n ? t(place(i).each < 74 ? "plot.count_short" : "plot.count", { written: written[i], expected: num(n * now.p[i], lang, 3) }) : ""; });
  }
  function draw() {
    now = read();
    made = draws(now.p, now.q, model.get("seed"));
    if (Number(plot.dataset.size) !== now.tokens.length) build();
    f.badge("ideal", ...(now.real ? [["recorded", record.created.slice(0, 10)]] : []));
    const text = now.real ? t("note.context", { question: now.real.question, beginning: now.real.beginning, k: record.sampling.top_k, draft: record.pair.draft, target: record.pair.target.split(" ")[0].split("/").at(-1) }) : "";
    if (context.textContent !== text) context.textContent = text;
    context.hidden = !now.real;
    if (!now.real && puzzle(now.p, now.q)) f.solve();
    told = -1;
    if (width === 0) { drawTime(); return; }
    plot.setAttribute("width", width);
    drawAxis(); drawBars(); drawStrip(); drawTime();
  }

  // --- controls ------------------------------------------------------------------------------------
  const size = (change) => {
    const { tokens, p, q } = read();
    const length = clamp(tokens.length + change, SIZES[0], SIZES[1]);
    if (length === tokens.length) return;
    const free = MORE.find((word) => !tokens.map(shown).includes(word));
    const resize = (values) => (change > 0 ? moved([...values, 0], values.length, 0.1) : textOf(weightsOf(textOf(values.slice(0, length)), length)));
    update(model, { context: "own", tokens: (change > 0 ? [...tokens, free] : tokens.slice(0, length)).map(shown).join("|"), p: resize(p), q: resize(q) });
  };
  const presets = Object.entries(PRESETS).map(([id, [tokens, p, q]]) => {
    const choose = button(on, t(`preset.${id}`), () => update(model, { context: "own", tokens, p, q }));
    on.follow(model, "*", () => choose.setAttribute("aria-pressed", String(model.get("context") === "own" && [tokens, p, q].every((x, i) => x === model.get(["tokens", "p", "q"][i])))));
    return choose;
  });
  const fewer = button(on, "−", () => size(-1), { label: t("control.fewer"), title: t("control.fewer") });
  const more = button(on, "+", () => size(1), { label: t("control.more"), title: t("control.more") });
  on.follow(model, "*", () => { const n = read().tokens.length; fewer.disabled = n <= SIZES[0]; more.disabled = n >= SIZES[1]; });
  f.stage.append(transport(on, model, player, { t, duration: () => DRAWS, format: (x) => t("plot.draws", { n: Math.floor(x + 1e-9) }), speeds: [1, 4, 16, 64] }));
  f.controls.append(
    h("div", { class: "sd-control" }, h("span", { class: "sd-label" }, t("control.presets")), h("div", { class: "ac-row" }, presets)),
    h("div", { class: "sd-control" }, h("span", { class: "sd-label" }, t("control.size")), h("div", { class: "ac-row" }, fewer, more)),
    select(on, model, "context", { label: t("control.context"), options: [["own", t("control.own")], ...record.contexts.map((x) => [x.id, t("control.context_name", { text: `${x.beginning.replace(/\s+/g, " ")} …`, alpha: fixed(acceptance(x.p, x.q), 2, lang) })])] }),
    numberField(on, model, "seed", { label: t("ui.seed"), width: "5.5em" }));
  f.controls.after(h("p", { class: "sd-note" }, t("note.read")));

  const redraw = frameThrottle(draw), retime = frameThrottle(drawTime);
  on.add(() => { redraw.cancel(); retime.cancel(); });
  for (const name of ["context", "tokens", "p", "q", "seed"]) { model.on(`change:${name}`, redraw.request); on.add(() => model.off(`change:${name}`, redraw.request)); }
  model.on("change:t", retime.request);
  on.add(() => model.off("change:t", retime.request));
  const recolour = new MutationObserver(retime.request);
  recolour.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  on.add(() => recolour.disconnect());
  on.resize(f.stage, (w) => { width = w; draw(); });
  draw();
  return f.end;
}
