// Figure 2. Left: the layer's weights in memory, one square a tile. Right: the compute units; a tile flies
// into a unit's on-chip memory, meets the activations x (the bar that stays) and lights one dot for every
// token, then is dropped. Which unit took which tile when is the recorded schedule. Below: bytes moved,
// multiply-adds and time of the three runs side by side.

import { frame as figureFrame } from "#sd/frame.js";
import { h, s, frameThrottle, uid } from "#sd/dom.js";
import { num, duration, si } from "#sd/format.js";
import { segments } from "#sd/controls.js";
import { createPlayer, transport } from "#sd/player.js";
import { loadRecord, acceptFile } from "#sd/records.js";
import { clamp } from "#sd/scale.js";
import { RUNS, find, frame, check } from "./model.js";

/** Seconds of playback for a whole run at speed 1. */
const SHOW = 18;
/** Share of a tile's time that the drawing spends on its flight. */
const FLIGHT = 0.35;

export function render({ model, el }) {
  const f = figureFrame({ model, el });
  const { on, t, lang } = f;
  const box = h("div", {});
  f.stage.append(box);
  f.badge("recorded");

  const start = (record) => {
    on.add(() => box.replaceChildren());
    build(record);
  };
  const given = model.get("record");
  if (given) start(given);
  else loadRecord(model, "cpu").then((record) => { model.set("record", record); start(record); })
    .catch((reason) => box.replaceChildren(h("p", { class: "sd-error", role: "alert" }, t("ui.error_figure", { reason: reason.message }))));

  function build(record) {
    const n = record.matrix.rows / record.tile.rows;
    const units = record.units;
    const run = () => find(record, model.get("run"));
    const span = () => frame(record, model.get("run"), 0).span;
    f.badge(["recorded", record.device.name]);

    // --- the drawing ----------------------------------------------------------------------------
    const svg = s("svg", { role: "img", "aria-label": t("alt"), width: "100%" });
    const compare = s("svg", { role: "img", "aria-label": t("alt_compare"), width: "100%" });
    const player = createPlayer(on, model, {
      duration: span,
      rate: () => (span() / SHOW) * model.get("speed"),
      next: (now, direction) => step(now, direction),
      element: svg,
    });
    const controls = transport(on, model, player, { t, duration: span, format: (x) => duration(x, lang), speeds: [0.25, 0.5, 1, 2, 4] });
    const clock = h("p", { class: "sd-note" });
    box.append(svg, controls, clock, h("p", { class: "sd-note", style: { "margin-top": "14px" } }, t("compare_title")), compare);

    const runPicker = segments(on, model, "run", { label: t("control.run"), options: Object.keys(RUNS).map((name) => [name, t(`run.${name}`, { k: RUNS[name] })]) });
    const fileId = uid("file");
    const input = h("input", { type: "file", accept: "application/json,.json", id: fileId, class: "sd-visually-hidden" });
    const refused = h("p", { class: "sd-warn", "aria-live": "polite" });
    const load = h("div", { class: "sd-control" }, h("span", { class: "sd-label" }, t("control.file")), input,
      h("div", {}, h("label", { for: fileId, class: "sd-button" }, t("control.choose"))));
    acceptFile(on, {
      element: f.root, input,
      take: (value) => { model.set("record", check(value)); refused.textContent = ""; player.pause(); model.set("t", 0); f.end(); el.replaceChildren(); render({ model, el }); },
      refuse: (reason) => { refused.textContent = t("refused", { reason }); },
    });
    f.controls.append(runPicker, load);
    f.controls.after(refused, h("p", { class: "sd-note" }, t("note", {
      rows: num(record.matrix.rows, lang, 6), columns: num(record.matrix.columns, lang, 6), tile: si(record.tile.bytes, "B", lang), tilerows: record.tile.rows,
      device: record.device.name, cores: record.device.cores, date: record.created.slice(0, 10), command: record.command,
    }) + (record.contaminated ? ` ${t("note_contaminated")}` : "")));

    // A change of run starts it from its beginning.
    let last = model.get("run");
    on.follow(model, "run", () => { if (model.get("run") !== last) { last = model.get("run"); player.pause(); model.set("t", 0); } });

    /** One tile on: the moment at which one more (or one fewer) tile is done. */
    function step(now, direction) {
      const ends = [...run().columns.done].sort((a, b) => a - b).map((x) => x / 1e9);
      const slack = 1e-9;
      return direction > 0 ? ends.find((x) => x > now + slack) ?? span() : ends.findLast((x) => x < now - slack) ?? 0;
    }

    // --- geometry ---------------------------------------------------------------------------------
    let place = null, cells = [], parts = [];
    function layout(width) {
      const narrow = width < 600;
      const gridWidth = narrow ? width : Math.round(width * 0.46);
      const across = Math.ceil(Math.sqrt(n * (narrow ? 2.4 : 1.25)));
      const pitch = Math.floor((gridWidth - 8) / across);
      const down = Math.ceil(n / across);
      const top = 26;
      const gridBottom = top + down * pitch;
      const unitTop = narrow ? gridBottom + 46 : top;
      const unitLeft = narrow ? 0 : gridWidth + 48;
      const shown = Math.min(units, 4);
      const unitWidth = (width - 1 - unitLeft - (shown - 1) * 16) / shown;
      const unitHeight = narrow ? 190 : Math.max(210, gridBottom - top);
      const height = Math.max(gridBottom, unitTop + unitHeight) + 8;
      place = { narrow, across, pitch, top, unitTop, unitLeft, unitWidth, unitHeight, width, height };
      svg.setAttribute("height", height);
      const cell = pitch - 3;
      cells = Array.from({ length: n }, (_, i) => s("rect", { x: (i % across) * pitch, y: top + Math.floor(i / across) * pitch, width: cell, height: cell, rx: 2 }));
      parts = Array.from({ length: Math.min(units, 4) }, (_, u) => {
        const x = unitLeft + u * (unitWidth + 16);
        const slot = { x: x + 14, y: unitTop + 40, size: cell };
        const tile = s("rect", { width: cell, height: cell, rx: 2, style: "fill: var(--sd-target); stroke: var(--sd-ink); stroke-width: 1" });
        const dots = s("g", {});
        const label = s("text", { x: slot.x + cell + 10, y: slot.y + cell / 2 + 4 });
        const group = s("g", {},
          s("rect", { x, y: unitTop, width: unitWidth, height: unitHeight, rx: 10, style: "fill: var(--sd-sunken); stroke: var(--sd-line-strong)" }),
          s("text", { x: x + 14, y: unitTop + 22, style: "font-weight: 600; fill: var(--sd-ink)" }, t("unit", { n: u + 1 })),
          s("rect", { x: slot.x - 3, y: slot.y - 3, width: cell + 6, height: cell + 6, rx: 4, style: "fill: none; stroke: var(--sd-line-strong); stroke-dasharray: 3 3" }), label,
          s("rect", { x: slot.x - 3, y: slot.y + cell + 14, width: unitWidth - 22, height: 10, rx: 2, style: "fill: var(--sd-raised); stroke: var(--sd-ink-2)" }),
          s("text", { x: slot.x - 3, y: slot.y + cell + 40 }, ""), dots);
        return { slot, tile, dots, label, group, x, lit: -1, k: 0, marks: [] };
      });
      svg.replaceChildren(
        s("text", { x: 0, y: 14, style: "font-weight: 600; fill: var(--sd-memory-ink)" }, t("memory", { n, tile: si(record.tile.bytes, "B", lang) })),
        ...cells, ...parts.map((p) => p.group), ...parts.map((p) => p.tile));
      dress();
      drawCompare(width);
    }

    /** Dots of each unit for the present k: one dot is one tile times one token. */
    function dress() {
      const k = run().k;
      for (const p of parts) {
        const area = { x: p.slot.x - 3, y: p.slot.y + p.slot.size + 52, w: place.unitWidth - 22, h: place.unitTop + place.unitHeight - (p.slot.y + p.slot.size + 52) - 12 };
        const pitch = Math.min(24, Math.max(4, Math.floor(Math.sqrt((area.w * area.h) / k))));
        const across = Math.max(1, Math.floor(area.w / pitch));
        p.marks = Array.from({ length: k }, (_, i) => s("circle", { cx: area.x + pitch / 2 + (i % across) * pitch, cy: area.y + pitch / 2 + Math.floor(i / across) * pitch, r: Math.max(1.5, pitch * 0.36) }));
        p.dots.replaceChildren(...p.marks);
        p.lit = -1;
        p.group.querySelectorAll("text")[2].textContent = t(place.unitWidth < 200 ? "x_bar_short" : "x_bar", { k });
      }
    }

    // --- one moment -------------------------------------------------------------------------------
    let dressed = null;
    function draw() {
      const g = frame(record, model.get("run"), model.get("t"));
      f.say(t("say", { k: run().k, done: num(g.done, lang, 5), tiles: num(g.tiles, lang, 5), bytes: si(g.bytes, "B", lang), total: si(g.totalBytes, "B", lang), macs: si(g.macs, "", lang) }).replaceAll("  ", " "));
      clock.textContent = t("clock", { now: duration(player.time, lang), end: duration(g.span, lang), slow: num(SHOW / g.span / model.get("speed"), lang, 2) });
      if (model.get("run") === "prefill" && g.done === 1) f.solve();
      if (!place) return;
      if (dressed !== model.get("run")) { dressed = model.get("run"); dress(); drawCompare(place.width); }
      const c = run().columns, now = Math.round(model.get("t") * 1e9);
      const at = new Map();
      for (let i = 0; i < n; i++) {
        const state = c.done[i] <= now ? "done" : c.issue[i] <= now && now > 0 ? "busy" : "waiting";
        const cell = cells[c.tile[i]];
        if (cell.dataset.state !== state) {
          cell.dataset.state = state;
          cell.style.cssText = state === "waiting" ? "fill: var(--sd-target)" : state === "busy" ? "fill: none; stroke: var(--sd-target); stroke-dasharray: 2 2" : "fill: var(--sd-target-soft); stroke: var(--sd-target); stroke-width: .8";
        }
        if (state === "busy") at.set(c.unit[i], i);
      }
      parts.forEach((p, u) => {
        const i = at.get(u);
        const busy = i !== undefined;
        p.tile.style.visibility = busy ? "visible" : "hidden";
        let lit = 0;
        if (busy) {
          const through = (now - c.issue[i]) / Math.max(1, c.done[i] - c.issue[i]);
          const fly = clamp(through / FLIGHT, 0, 1), eased = fly * fly * (3 - 2 * fly);
          const from = cells[c.tile[i]];
          const x0 = Number(from.getAttribute("x")), y0 = Number(from.getAttribute("y"));
          p.tile.setAttribute("x", x0 + (p.slot.x - x0) * eased);
          p.tile.setAttribute("y", y0 + (p.slot.y - y0) * eased);
          lit = through <= FLIGHT ? 0 : Math.ceil(clamp((through - FLIGHT) / (1 - FLIGHT), 0, 1) * p.marks.length);
        }
        const name = busy ? t("tile", { n: c.tile[i] + 1 }) : "";
        if (p.label.textContent !== name) p.label.textContent = name;
        if (lit !== p.lit) {
          p.marks.forEach((m, j) => { if (p.lit < 0 || (j < lit) !== (j < p.lit)) m.style.cssText = j < lit ? "fill: var(--sd-compute)" : "fill: none; stroke: var(--sd-line-strong)"; });
          p.lit = lit;
        }
      });
    }

    // --- three runs side by side -------------------------------------------------------------------
    function drawCompare(width) {
      const names = Object.keys(RUNS);
      const frames = names.map((name) => frame(record, name, 1e6));
      const rows = [
        ["bytes", frames.map((x) => x.totalBytes), (x) => si(x, "B", lang), "--sd-memory"],
        ["macs", frames.map((x) => x.totalMacs), (x) => si(x, "", lang).trim(), "--sd-compute"],
        ["time", names.map((name) => find(record, name).untraced_s), (x) => duration(x, lang), "--sd-ink-3"],
      ];
      const narrow = width < 600;
      const column = narrow ? width : (width - 40) / 3;
      const labelWidth = 76, valueWidth = 66, rowHeight = 24;
      const nodes = [];
      let y = 0;
      rows.forEach(([name, values, format, colour], j) => {
        const x = narrow ? 0 : j * (column + 20);
        const top = narrow ? y : 0;
        nodes.push(s("text", { x, y: top + 14, style: "font-weight: 600; fill: var(--sd-ink)" }, t(`compare.${name}`)));
        const room = column - labelWidth - valueWidth;
        values.forEach((value, i) => {
          const yy = top + 24 + i * rowHeight;
          const w = Math.max(1.5, (value / Math.max(...values)) * room);
          const current = names[i] === model.get("run");
          nodes.push(
            s("text", { x, y: yy + 13, style: current ? "font-weight: 700; fill: var(--sd-ink)" : null }, t(`short.${names[i]}`)),
            s("rect", { x: x + labelWidth, y: yy + 2, width: w, height: 14, rx: 2, style: `fill: var(${colour}); opacity: ${current ? 1 : 0.55}` }),
            s("text", { x: x + labelWidth + w + 6, y: yy + 13 }, format(value)));
        });
        y += 24 + 3 * rowHeight + 12;
      });
      compare.setAttribute("height", narrow ? y : 24 + 3 * rowHeight + 4);
      compare.replaceChildren(...nodes);
    }

    const frames = Object.keys(RUNS).map((name) => [find(record, name), frame(record, name, 1e6)]);
    const row = (name, fn) => [t(`table.${name}`), ...frames.map(fn)];
    f.table([
      [t("table.quantity"), ...frames.map(([r]) => `k = ${r.k}`)],
      row("tiles", ([, g]) => num(g.tiles, lang, 5)),
      row("bytes", ([, g]) => si(g.totalBytes, "B", lang, 6)),
      row("macs", ([, g]) => si(g.totalMacs, "", lang)),
      row("intensity", ([, g]) => num(g.totalMacs / g.totalBytes, lang)),
      row("untraced", ([r]) => duration(r.untraced_s, lang)),
      row("traced", ([r]) => duration(r.traced_s, lang)),
      row("bandwidth", ([r, g]) => si(g.totalBytes / r.untraced_s, "B/s", lang)),
    ], t("table.caption"));

    const redraw = frameThrottle(draw);
    on.add(redraw.cancel);
    on.resize(box, (width) => { layout(width); redraw.request(); });
    on.follow(model, "*", redraw.request);
  }

  return f.end;
}
