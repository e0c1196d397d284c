// Figure 1. Above: the time of one pass against the tokens it handles (log-log): what reading alone
// takes, what computing alone takes, their maximum, the knee; a marker to drag. Below: that one pass as a
// timeline, reading and computing side by side.

import { frame as figureFrame } from "#sd/frame.js";
import { h, s, frameThrottle } from "#sd/dom.js";
import { num, duration, si, percent } from "#sd/format.js";
import { slider, select, segments, toggle, numberField } from "#sd/controls.js";
import { linear, log, ticks, clamp } from "#sd/scale.js";
import { embedChart, near } from "#sd/chart.js";
import { measureButton, measuring } from "#sd/measure.js";
import { frame, measuredPoints, withLive, K_MAX, LIVE, PRECISIONS, PREFILL } from "./model.js";

const PARAMS = ["k", "m", "hardware", "model", "precision", "batch", "context", "flops_share", "bandwidth_share", "custom_tflops", "custom_gbs", "custom_gb"];
/** Where the slider stops: every value up to 16, then about twelve a factor of two, powers of two exact. */
const STOPS = (() => {
  const stops = new Set();
  for (let k = 1; k <= 16; k++) stops.add(k);
  for (let i = 48; i <= 156; i++) stops.add(Math.round(2 ** (i / 12)));
  return [...stops].filter((k) => k <= K_MAX).sort((a, b) => a - b);
})();
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const CONTEXTS = [0, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072];
const BORDER = { left: 88, right: 18, top: 12, bottom: 56 };
const HEIGHT = 360;

/** The sentence under the figure; `figure.py` says the same. */
function sentence(t, lang, k, f) {
  const memoryBound = f.here.read >= f.here.compute;
  const before = t(memoryBound ? "say.memory" : "say.compute", {
    k: num(k, lang, 5), time: duration(f.here.time, lang), read: duration(f.here.read, lang),
    compute: duration(f.here.compute, lang), per: duration(f.here.time / k, lang), ratio: num(f.here.time / f.decode.time, lang),
  });
  return memoryBound && f.free ? t("say.free", { before, free: num(f.free, lang, 7) }) : before;
}

function rows(t, lang, p, f) {
  const columns = [f.decode, f.verify, f.here, f.prefill];
  const heads = [1, p.m + 1, p.k, PREFILL];
  const each = (name, fn) => [t(name), ...columns.map(fn)];
  return [
    [t("table.quantity"), ...heads.map((k) => `k = ${num(k, lang, 5)}`)],
    each("table.weights", (c) => si(c.weightBytes, "B", lang)),
    each("table.kv", (c) => si(c.kvBytes, "B", lang)),
    each("table.flops", (c) => si(c.flops + c.attentionFlops, "FLOP", lang)),
    each("table.read", (c) => duration(c.read, lang)),
    each("table.compute", (c) => duration(c.compute, lang)),
    each("table.time", (c) => duration(c.time, lang)),
    each("table.per_token", (c, i) => duration(c.time / heads[i], lang)),
    [t("table.knee"), num(f.knee, lang), "", "", ""],
  ];
}

export function render({ model, el }) {
  const f = figureFrame({ model, el });
  const { on, t, lang } = f;
  const here = measuring(model), asked = { what: "roofline" };
  /** The measurement of this server, unless it was disturbed: then it is no fact. */
  const liveOne = () => { const last = here.found(asked)?.measured; return last && !last.contaminated ? last : null; };
  let data = withLive(model.get("data"), liveOne());
  const state = () => Object.fromEntries(PARAMS.map((name) => [name, model.get(name)]));

  // --- the stage: chart with its marker, then the timeline --------------------------------------
  const chartBox = h("div", { class: "roofline-chart", style: { height: `${HEIGHT}px` } });
  const handle = s("g", { style: "cursor: ew-resize; touch-action: none; pointer-events: all" },
    s("line", { class: "stem", "stroke-width": 1.5, style: "stroke: var(--sd-target); stroke-dasharray: 2 3" }),
    s("circle", { r: 22, fill: "transparent" }),
    s("circle", { r: 9, "stroke-width": 3, style: "fill: var(--sd-target); stroke: var(--sd-raised)" }));
  const overlay = s("svg", { style: "position: absolute; inset: 0; width: 100%; height: 100%; pointer-events: none", "aria-hidden": "true" }, handle);
  const chartWrap = h("div", { style: { position: "relative" }, role: "img", "aria-label": t("alt") }, chartBox, overlay);
  const timeline = s("svg", { role: "img", "aria-label": t("alt_timeline"), width: "100%", height: 118 });
  const warning = h("p", { class: "sd-note", "aria-live": "polite" });
  f.stage.append(
    h("p", { class: "sd-note" }, t("chart_title")), chartWrap,
    h("p", { class: "sd-note", style: { "margin-top": "8px" } }, t("timeline_title")), timeline);

  // --- controls ---------------------------------------------------------------------------------
  const sheets = Object.entries(data.hardware).filter(([id]) => !data.measured[id]).map(([id, x]) => [id, x.name + (x.unconfirmed.length ? " *" : "")]);
  const nameOf = ({ device, cores }) => (cores ? t("control.measured_device", { name: device, cores }) : device);
  const measured = Object.entries(data.measured).filter(([id]) => id !== LIVE).map(([id, x]) => [id, nameOf(x)]);
  const hardwareOptions = [[t("control.measured"), [[LIVE, ""], ...measured]], [t("control.sheets"), [...sheets, ["custom", t("control.custom")]]]];
  // A machine that was measured is met with the model that the race runs, not with 70B.
  let lastHardware = model.get("hardware");
  on.follow(model, "hardware", () => {
    const next = model.get("hardware");
    if (next !== lastHardware && data.measured[next] && model.get("model") === "dense-70b") model.set("model", "smollm2-135m");
    lastHardware = next;
  });
  const custom = h("div", { style: { display: "contents" } },
    numberField(on, model, "custom_tflops", { label: t("control.custom_tflops") }),
    numberField(on, model, "custom_gbs", { label: t("control.custom_gbs") }),
    numberField(on, model, "custom_gb", { label: t("control.custom_gb") }));
  const presetButtons = h("div", { class: "sd-control" }, h("span", { class: "sd-label" }, t("control.presets")),
    h("div", { style: { display: "flex", gap: "6px", "flex-wrap": "wrap" } },
      [["decode", () => 1], ["verify", () => model.get("m") + 1], ["prefill", () => PREFILL]].map(([name, k]) =>
        h("button", { type: "button", onclick: () => { model.set("k", k()); model.save_changes(); } }, t(`mark.${name}`)))));
  const beyond = h("details", {}, h("summary", {}, t("control.beyond")),
    h("div", { class: "sd-controls" },
      slider(on, model, "context", { label: t("control.context"), values: CONTEXTS, format: (x) => num(x, lang, 6) }),
      slider(on, model, "bandwidth_share", { label: t("control.bandwidth_share"), format: (x) => `${Math.round(x * 100)}%` }),
      slider(on, model, "flops_share", { label: t("control.flops_share"), format: (x) => `${Math.round(x * 100)}%` })),
    h("p", { class: "sd-note" }, t("note.beyond")));
  if (model.get("context") > 0 || model.get("flops_share") < 1 || model.get("bandwidth_share") < 1) beyond.open = true;
  const source = h("p", { class: "sd-note" });
  const measure = measureButton(on, model, {
    t, request: () => ({ ...asked, again: here.found(asked) !== null }),
    label: () => t(here.found(asked) ? "control.measure_again" : "control.measure"),
    note: ({ state, measured }) => (state === "none" ? t("note.measure") : measured.contaminated ? t("note.disturbed", { disturbed: measured.disturbed, visits: measured.visits }) : t("note.measured_here", { bandwidth: si(measured.bandwidth, "B/s", lang), flops: si(measured.flops, "FLOP/s", lang), knee: num(measured.knee, lang) })),
    found: () => { if (liveOne()) { model.set("hardware", LIVE); model.save_changes(); } },
  });
  f.controls.append(
    slider(on, model, "k", { label: t("control.k"), values: STOPS, format: (k) => num(k, lang, 5) }), presetButtons,
    select(on, model, "hardware", { label: t("control.hardware"), options: hardwareOptions }), custom,
    select(on, model, "model", { label: t("control.model"), options: Object.entries(data.models).map(([id, x]) => [id, id === "dense-70b" ? t("control.article_model") : x.name]) }),
    segments(on, model, "precision", { label: t("control.precision"), options: [["bf16", "BF16"], ["int8", "FP8 / INT8"], ["int4", "INT4"]] }),
    slider(on, model, "batch", { label: t("control.batch"), values: BATCHES, format: (x) => num(x, lang, 4), wide: false }),
    slider(on, model, "m", { label: t("control.m"), format: String, wide: false }));
  f.controls.after(measure.element, beyond, source, warning);
  const liveOption = f.controls.querySelector(`option[value="${LIVE}"]`);
  const followServer = () => {
    data = withLive(model.get("data"), liveOne());
    liveOption.textContent = liveOne() ? t("control.live_device", { name: nameOf(liveOne()) }) : t("control.live_none");
    liveOption.disabled = !liveOne() && model.get("hardware") !== LIVE;
    shown = badged = null;
    redraw.request();
  };

  // --- drawing ----------------------------------------------------------------------------------
  let chart = null, width = 0, shown = null, badged = null;
  const grid = Array.from({ length: 131 }, (_, i) => (K_MAX * 1.25) ** (i / 130) * 0.8 ** (1 - i / 130));
  const yRange = (g) => [Math.min(g.at(1).read, g.at(1).compute) / 2.2, g.at(K_MAX).time * 2.2];
  const xPixel = () => log([0.8, K_MAX * 1.25], [BORDER.left, width - BORDER.right]);
  const yPixel = (g) => log(yRange(g), [HEIGHT - BORDER.bottom, BORDER.top]);

  function drawCurves(g, p) {
    if (!chart) return;
    const [y0, y1] = yRange(g);
    const range = chart.get("y_range");
    if (range.start !== y0 || range.end !== y1) range.setv({ start: y0, end: y1 });
    const narrow = width < 560;
    const every = narrow ? 4 : 2;
    chart.get("k_ticks").ticks = Array.from({ length: 14 }, (_, e) => 2 ** e).filter((_, e) => e % every === 0);
    const passes = grid.map(g.at);
    chart.get("curves").data = { k: grid, read: passes.map((x) => x.read), compute: passes.map((x) => x.compute), time: passes.map((x) => x.time) };
    const points = measuredPoints(data, p);
    chart.get("points").data = Object.fromEntries(["k", "median", "low", "high"].map((name, i) => [name, points.map((x) => x[i])]));
    const marks = [["decode", 1], ["verify", p.m + 1], ["prefill", PREFILL]];
    chart.get("marks").data = { k: marks.map((x) => x[1]), time: marks.map((x) => g.at(x[1]).time), text: marks.map((x) => t(`mark.${x[0]}`)), side: marks.map((x) => (x[1] > g.knee ? "right" : "left")), shift: marks.map((x) => (x[1] > g.knee ? -2 : 2)) };
    const bend = clamp(g.knee, 0.8, K_MAX * 1.25);
    chart.get("knee").location = g.knee <= K_MAX * 1.25 && g.knee >= 0.8 ? g.knee : null;
    // The names of the two limits stand where the lines are far apart.
    chart.get("label_read").setv({ x: 40, y: g.at(40).read, text: t("limit.read"), x_offset: 0, y_offset: bend > 40 ? 8 : -20 });
    const kCompute = clamp(bend / 12, 1.2, 1200);
    chart.get("label_compute").setv({ x: kCompute, y: g.at(kCompute).compute, text: t("limit.compute"), y_offset: -20, x_offset: 10 });
    const left = bend > (narrow ? 40 : 600); // there is no room to the right of it
    chart.get("label_knee").setv({ x: bend, y: y0 * 1.5, text: g.knee <= K_MAX ? t("limit.knee", { k: num(g.knee, lang) }) : "" , text_align: left ? "right" : "left", x_offset: left ? -6 : 6 });
  }

  function drawHere(g, p) {
    const x = xPixel()(p.k), y = yPixel(g)(g.here.time);
    const [stem, ...circles] = handle.children;
    stem.setAttribute("x1", x); stem.setAttribute("x2", x); stem.setAttribute("y1", y); stem.setAttribute("y2", HEIGHT - BORDER.bottom);
    for (const c of circles) { c.setAttribute("cx", x); c.setAttribute("cy", y); }
  }

  function drawTimeline(g) {
    const { read, compute, time } = g.here;
    const end = Math.max(read * 1.25, time * 1.08);
    const x = linear([0, end], [BORDER.left, width - BORDER.right]);
    const bar = (y, seconds, name) => {
      const w = Math.max(1.5, x(seconds) - x(0));
      const inside = w > 150;
      return s("g", {},
        s("text", { x: BORDER.left - 8, y: y + 19, "text-anchor": "end" }, t(`bar.${name}`)),
        s("rect", { x: x(0), y, width: w, height: 28, rx: 3, style: `fill: var(--sd-${name === "read" ? "memory" : "compute"})` }),
        s("text", inside
          ? { x: x(0) + 10, y: y + 19, style: "fill: var(--sd-raised); font-weight: 600" }
          : { x: x(0) + w + 8, y: y + 19, style: `fill: var(--sd-${name === "read" ? "memory" : "compute"}-ink); font-weight: 600` },
        duration(seconds, lang)));
    };
    const axis = ticks(0, end, width < 500 ? 4 : 7).map((v) => s("g", {},
      s("line", { x1: x(v), x2: x(v), y1: 4, y2: 88, style: "stroke: var(--sd-line)" }),
      s("text", { x: x(v), y: 106, "text-anchor": "middle" }, duration(v, lang))));
    timeline.replaceChildren(...axis, bar(12, read, "read"), bar(48, compute, "compute"),
      s("line", { x1: x(time), x2: x(time), y1: 4, y2: 88, "stroke-width": 2, style: "stroke: var(--sd-ink)" }));
  }

  /** A pass repeated on weights that fit there is not held up by the memory; the figure assumes the first pass. */
  function cacheNote({ cache }, p) {
    const bytes = data.models[p.model].parameters * PRECISIONS[p.precision];
    return !cache ? "" : t(bytes <= cache ? "note.in_cache" : "note.cache", { cache: si(cache, "B", lang), bytes: si(bytes, "B", lang) });
  }

  function draw() {
    const p = state();
    const g = frame(data, p);
    f.say(sentence(t, lang, p.k, g));
    if (width > 0) {
      const key = JSON.stringify({ ...p, k: 0 });
      if (key !== shown) { drawCurves(g, p); if (chart) shown = key; }
      drawHere(g, p);
      drawTimeline(g);
    }
    f.table(rows(t, lang, p, g), t("table.caption"));
    custom.style.display = p.hardware === "custom" ? "contents" : "none";
    const hardware = data.hardware[p.hardware], own = data.measured[p.hardware];
    const live = p.hardware === LIVE && liveOne() !== null;
    const drawn = own ? "measured" : "ideal";
    if (badged !== drawn + p.hardware) { badged = drawn + p.hardware; own ? f.badge([live ? "live" : "recorded", own.device], "ideal") : f.badge("ideal"); }
    source.textContent = own
      ? [p.hardware === LIVE && !live ? t("note.no_live") : "",
        t(live ? "note.live" : "note.measured", { name: nameOf(own), model: own.model, date: own.created.slice(0, 10), time: own.created.slice(11, 16), command: own.command, kernel: own.kernel, bandwidth: si(own.bandwidth, "B/s", lang), flops: si(own.flops, "FLOP/s", lang), error: percent(own.error, lang) }),
        measuredPoints(data, p).length ? t("note.scaled") : t("note.no_points", { precision: own.precision.toUpperCase() }), own.contaminated ? t("note.contaminated") : ""].filter(Boolean).join(" ")
      : hardware
      ? t("note.source", { name: hardware.name, flops: si(hardware.flops, "FLOP/s", lang), bandwidth: si(hardware.bandwidth, "B/s", lang), memory: si(hardware.memory, "B", lang), title: data.sources[hardware.source].title, date: data.sources[hardware.source].accessed }) + [cacheNote(hardware, p), hardware.unconfirmed.length ? t("note.unconfirmed") : ""].filter(Boolean).map((x) => ` ${x}`).join("")
      : "";
    const text = g.fits ? "" : t("say.too_big", { needs: si(g.needs, "B", lang), memory: si(g.hardware.memory, "B", lang) });
    if (warning.textContent !== text) warning.textContent = text;
    if (g.at(9).time >= 2 * g.decode.time) f.solve();
  }
  const redraw = frameThrottle(draw);
  on.add(redraw.cancel);
  on.follow(model, "*", redraw.request);
  on.resize(f.stage, (w) => { width = w; shown = null; redraw.request(); });
  on.add(here.subscribe(followServer));
  followServer();
  measure.draw();

  // --- dragging the marker ------------------------------------------------------------------------
  // touch-action does not reach every browser's SVG: without this the page would pan instead.
  on.listen(handle, "touchstart", (event) => event.preventDefault(), { passive: false });
  on.listen(handle, "pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  on.listen(handle, "pointermove", (event) => {
    if (!handle.hasPointerCapture(event.pointerId)) return;
    const k = xPixel().invert(event.clientX - overlay.getBoundingClientRect().left);
    model.set("k", clamp(Math.round(k), 1, K_MAX));
  });
  on.listen(handle, "pointerup", () => model.save_changes());

  near(f.root, on)
    .then(() => { here.look(); return embedChart(on, model.get("chart"), chartBox); })
    .then((ready) => { chart = ready; shown = null; redraw.request(); })
    .catch((reason) => { console.error(reason); chartBox.replaceChildren(h("p", { class: "sd-error" }, t("ui.error_figure", { reason: reason.message }))); });

  return f.end;
}
