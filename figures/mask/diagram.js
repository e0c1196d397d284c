// The picture of `mask`: outputs over inputs with a fan from the chosen output to what it may see, and under both
// the triangle, a row for each output. Built once for a structure and a width; pointing only repaints.

import { s, uid } from "#sd/dom.js";

const CELL = 24;

export const STYLE = `
.mk-presets { display: flex; flex-wrap: wrap; gap: var(--sd-2); margin-bottom: var(--sd-3); }
.mk-holder svg { overflow: visible; }
.mk-sw-context { background: var(--sd-target); opacity: 0.7; }
.mk-sw-draft { background: var(--sd-draft); }
.mk-proof { border-top: 1px solid var(--sd-line); margin-top: var(--sd-3); padding-top: var(--sd-3); display: grid; gap: var(--sd-2); }
.mk-proof .sd-tablewrap { max-height: none; }
.sd-controls > .mk-sentence { flex: 1 1 24em; }
.mk-title { margin: 0; font-size: var(--sd-size-m); font-weight: 650; }
.mk-same { color: var(--sd-accepted-ink); font-size: var(--sd-size-s); }
.mk-note { margin-top: var(--sd-1) !important; }
.sd-figure svg text.mk-caption { font-size: 12px; fill: var(--sd-ink-3); }
.sd-figure svg text.mk-small { font-size: 11px; fill: var(--sd-ink-3); font-variant-numeric: tabular-nums; }
.sd-figure svg text.mk-token { font-size: 13px; fill: var(--sd-ink); }
.sd-figure svg text.mk-token[data-tall] { font-size: 12px; }
.mk-box { cursor: pointer; }
.mk-box rect.mk-hit { fill: transparent; }
.mk-box:focus { outline: none; }
.mk-box:focus-visible rect.mk-frame { stroke: var(--sd-focus) !important; stroke-width: 3px; }
.mk-frame { fill: var(--sd-sunken); stroke: var(--sd-line-strong); }
.mk-box[data-fate="open"] .mk-frame { fill: var(--sd-target-soft); stroke: var(--sd-target); }
.mk-box[data-fate="accepted"] .mk-frame { fill: var(--sd-accepted-soft); stroke: var(--sd-accepted); }
.mk-box[data-fate="supplied"] .mk-frame { fill: var(--sd-supplied-soft); stroke: var(--sd-supplied); stroke-width: 2px; }
.mk-box[data-fate="bonus"] .mk-frame { fill: var(--sd-raised); stroke: var(--sd-bonus); stroke-width: 2.5px; }
.mk-box[data-fate="void"] .mk-frame { fill: var(--sd-sunken); stroke: var(--sd-line-strong); stroke-dasharray: 3 3; }
.mk-box[data-fate="void"] .mk-token { text-decoration: line-through; fill: var(--sd-ink-3) !important; }
.mk-box[data-kind="draft"] .mk-frame { fill: var(--sd-draft-soft); stroke: var(--sd-draft); stroke-dasharray: none; }
.mk-box[data-kind="draft"][data-fate="rejected"] .mk-frame { fill: var(--sd-rejected-soft); stroke: var(--sd-rejected); stroke-width: 2px; }
.mk-box[data-kind="draft"][data-fate="rejected"] .mk-token { text-decoration: line-through; }
.mk-box[data-kind="draft"][data-fate="void"] .mk-frame { fill: var(--sd-sunken); stroke: var(--sd-line-strong); stroke-dasharray: 3 3; }
.mk-box[data-chosen] .mk-frame { stroke: var(--sd-ink) !important; stroke-width: 2.5px; }
.mk-box[data-dim] { opacity: 0.32; }
.mk-line { fill: none; stroke-width: 1.6px; stroke: var(--sd-target); opacity: 0.75; }
.mk-line[data-kind="draft"] { stroke: var(--sd-draft); }
.mk-line[data-kind="rejected"] { stroke: var(--sd-rejected); stroke-dasharray: 4 3; }
.mk-cell { stroke: none; }
.mk-cell[data-kind="context"] { fill: var(--sd-target); }
.mk-cell[data-kind="draft"] { fill: var(--sd-draft); }
.mk-cell[data-kind="rejected"] { fill: var(--sd-rejected); }
.mk-row { cursor: pointer; }
.mk-row .mk-cell { opacity: 0.45; }
.mk-row[data-void] .mk-cell { opacity: 0.18; }
.mk-row[data-void] .mk-cell[data-kind="rejected"] { opacity: 0.8; }
.mk-row[data-chosen] .mk-cell { opacity: 1; }
.mk-row .mk-back { fill: transparent; }
.mk-row[data-chosen] .mk-back { fill: var(--sd-sunken); }
.mk-row[data-chosen] text.mk-small { fill: var(--sd-ink); font-weight: 700; }
.mk-blank { fill: var(--sd-line-strong); opacity: 0.5; }
.mk-brace { fill: none; stroke: var(--sd-line-strong); }
@media (prefers-reduced-motion: no-preference) {
  .mk-box, .mk-cell, .mk-line { transition: opacity var(--sd-motion), fill var(--sd-motion); }
}
@media (forced-colors: active) {
  .mk-cell { fill: CanvasText; } .mk-line { stroke: CanvasText; } .mk-box[data-chosen] .mk-frame { stroke: Highlight !important; }
}
`;

const han = /[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]/;
const emWidth = (c) => (han.test(c) || c.codePointAt(0) > 0xffff ? 1.02 : "mwMW@%".includes(c) ? 0.88 : "ijltfrI.,:;'!|".includes(c) ? 0.34 : 0.6);
const wide = (text, size) => [...text].reduce((sum, c) => sum + emWidth(c) * size, 0);

/** Cut `text` to a width in px. */
function fit(text, room, size) {
  if (wide(text, size) <= room) return text;
  let cut = "";
  for (const c of text) { if (wide(cut + c, size) + size * 0.7 > room) break; cut += c; }
  return `${cut}…`;
}

const MARKS = { accepted: "✓", supplied: "◆", bonus: "★", void: "✕", rejected: "✗" };

/**
 * Build the picture. `pass`: what model.js gives; `choices`: text of each output's first choice and whether it is
 * the drafted token ({ text, agrees }), or null without a record. `act`: { choose(index), point(index or null),
 * reject(index) }. Returns { svg, paint(pass, pointed), focusOutput(i), focusDraft(i) }.
 */
export function diagram({ pass, choices, width, t, act }) {
  const { tokens, m, context } = pass;
  const gutter = 20;
  const least = width < 560 ? 25 : 54;
  const most = Math.max(m + 2, Math.floor((width - gutter) / least));
  // Where all columns do not fit, the earliest of the context share one.
  const folded = tokens.length > most ? tokens.length - most + 1 : 0;
  const columns = tokens.length - folded + (folded ? 1 : 0);
  const step = Math.min(76, (width - gutter) / columns);
  const tall = step < 44;
  const column = (position) => (position < folded ? 0 : position - folded + (folded ? 1 : 0));
  const left = (position) => gutter + column(position) * step;
  const middle = (position) => left(position) + step / 2;
  const boxHeight = tall ? 68 : 34, FAN = width < 560 ? 58 : 84;
  const outY = 40, inY = outY + boxHeight + FAN, braceY = inY + boxHeight + 8, gridY = braceY + 48;
  const height = gridY + (m + 1) * CELL + 6;
  const right = gutter + columns * step;
  const clipId = uid("clip");

  function label(text, x, y, room) {
    const clean = text.trim() || "␣";
    if (!tall) return s("text", { class: "mk-token", x, y: y + boxHeight / 2 + 4.5, "text-anchor": "middle" }, fit(clean, room, 13));
    const shown = fit(clean, boxHeight - 10, 12);
    const upright = [...clean].every((c) => han.test(c));
    return upright
      ? s("text", { class: "mk-token", "data-tall": true, x, y: y + boxHeight / 2, "text-anchor": "middle", "dominant-baseline": "central", style: { "writing-mode": "vertical-rl", "text-orientation": "upright" } }, shown)
      : s("text", { class: "mk-token", "data-tall": true, "text-anchor": "middle", transform: `translate(${x} ${y + boxHeight / 2}) rotate(-90)`, y: 4 }, shown);
  }

  function box(position, y, text, attributes) {
    const x = left(position), w = step - (tall ? 3 : 6);
    const frame = s("rect", { class: "mk-frame", x: x + (step - w) / 2, y, width: w, height: boxHeight, rx: 5 });
    return s("g", { class: "mk-box", ...attributes }, frame, label(text, middle(position), y, w - 8));
  }

  /** One stop for Tab in a group of marks; arrows move, and `act` follows. */
  function rove(nodes, onMove, onPress) {
    nodes.forEach((node, i) => {
      node.addEventListener("keydown", (event) => {
        const to = { ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0, End: nodes.length - 1 }[event.key];
        if (nodes[to]) { event.preventDefault(); onMove(to); nodes[to].focus(); }
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onPress(i); }
      });
    });
  }

  // Inputs.
  const inputs = tokens.map((text, position) => {
    if (position < folded - 1) return null;
    if (folded && position === folded - 1) {
      const group = box(position, inY, t("draw.more", { count: folded }), { "data-kind": "context", "aria-hidden": "true" });
      group.style.cursor = "default";
      return group;
    }
    const draft = position >= context;
    const group = box(position, inY, text, { "data-kind": draft ? "draft" : "context" });
    if (!draft) { group.style.cursor = "default"; return group; }
    const index = position - context + 1;
    group.setAttribute("role", "button");
    group.setAttribute("aria-label", t("draw.draft", { index, token: text.trim() }));
    group.addEventListener("click", () => act.reject(index));
    group.append(s("text", { class: "mk-small mk-mark", x: middle(position), y: inY - 5, "text-anchor": "middle" }),
      s("rect", { class: "mk-hit", x: left(position), y: inY - 16, width: step, height: boxHeight + 20 }));
    return group;
  });
  const drafts = inputs.slice(context);
  rove(drafts, (i) => { drafts.forEach((d, j) => d.setAttribute("tabindex", j === i ? 0 : -1)); }, (i) => act.reject(i + 1));
  drafts.forEach((node, i) => node.setAttribute("tabindex", i === 0 ? 0 : -1));

  // Outputs.
  const outputs = pass.outputs.map((output, i) => {
    const group = box(output.position, outY, choices ? choices[i].text : "?", { role: "radio", "data-kind": "output" });
    group.append(s("text", { class: "mk-small mk-mark", x: middle(output.position), y: outY - 6, "text-anchor": "middle" }),
      s("rect", { class: "mk-hit", x: left(output.position), y: outY - 18, width: step, height: boxHeight + 22 }));
    const what = output.checks ? t("what.check", { index: output.checks }) : t("what.bonus");
    group.setAttribute("aria-label", t("draw.output", { index: output.index, count: m + 1, what, sees: output.sees }));
    group.addEventListener("click", () => act.choose(output.index));
    group.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") act.point(output.index); });
    group.addEventListener("pointerleave", () => act.point(null));
    return group;
  });
  rove(outputs, (i) => act.choose(i + 1), (i) => act.choose(i + 1));

  // The fan: a line from every column's top to wherever the chosen output is.
  const shownPositions = tokens.map((_, i) => i).filter((i) => i >= folded - 1 || i === 0).filter((i) => !(folded && i < folded - 1));
  const lines = shownPositions.map((position) => s("path", { class: "mk-line", "data-position": position }));

  // The triangle.
  const rows = pass.outputs.map((output, i) => {
    const y = gridY + i * CELL;
    const row = s("g", { class: "mk-row", "aria-hidden": "true" },
      s("rect", { class: "mk-back", x: 0, y, width: right, height: CELL, rx: 4 }),
      s("text", { class: "mk-small", x: 8, y: y + CELL / 2 + 4, "text-anchor": "middle" }, output.index),
      shownPositions.map((position) => (position < output.sees
        ? s("rect", { class: "mk-cell", "data-position": position, x: left(position) + 2, y: y + 2, width: step - 4, height: CELL - 4, rx: 3 })
        : s("circle", { class: "mk-blank", cx: middle(position), cy: y + CELL / 2, r: 1.8 }))));
    row.addEventListener("click", () => act.choose(output.index));
    row.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") act.point(output.index); });
    row.addEventListener("pointerleave", () => act.point(null));
    return row;
  });

  function brace(from, to, words, short) {
    const [a, b] = [left(from) + 3, left(to) + step - 3];
    const text = [words, short].find((x) => wide(x, 11) < b - a + 6);
    return [s("path", { class: "mk-brace", d: `M${a} ${braceY}v5H${b}v-5` }), text ? s("text", { class: "mk-small", x: (a + b) / 2, y: braceY + 18, "text-anchor": "middle" }, text) : null];
  }

  const svg = s("svg", { width, height, class: "mk-svg" },
    s("defs", {}, s("clipPath", { id: clipId }, s("rect", { x: 0, y: 0, width, height }))),
    s("text", { class: "mk-caption", x: 0, y: 12 }, fit(t(choices ? "draw.outputs" : "draw.outputs_plain"), width, 12)),
    s("g", { "clip-path": `url(#${clipId})` }, lines),
    s("g", { role: "radiogroup", "aria-label": t("draw.group_outputs") }, outputs),
    s("g", { role: "group", "aria-label": t("draw.group_drafts") }, inputs),
    context > 1 ? brace(0, context - 2, t("draw.cached"), t("draw.cached_short")) : null,
    brace(context - 1, tokens.length - 1, t("draw.pass", { count: m + 1 }), t("draw.pass_short")),
    s("text", { class: "mk-caption", x: 0, y: gridY - 8 }, fit(t("draw.mask"), width, 12)),
    rows);

  /** Show a verdict and what the output `chosen` sees (0: none). */
  function paint(now, chosen) {
    const output = now.outputs[chosen - 1];
    const sees = output ? output.sees : tokens.length;
    const lost = now.rejected ? context + now.rejected - 1 : -1;
    const kind = (position) => (position === lost ? "rejected" : position >= context ? "draft" : "context");
    outputs.forEach((node, i) => {
      const { fate, index } = now.outputs[i];
      node.dataset.fate = fate;
      const judged = MARKS[fate] ?? (choices && choices[i].agrees !== null ? (choices[i].agrees ? "=" : "≠") : "");
      node.querySelector(".mk-mark").textContent = tall && judged ? `${index}${judged}` : `${index} ${judged}`.trim();
      const on = index === chosen;
      on ? node.setAttribute("data-chosen", "") : node.removeAttribute("data-chosen");
      node.setAttribute("aria-checked", String(on));
      node.setAttribute("tabindex", index === (chosen || 1) ? 0 : -1);
    });
    inputs.forEach((node, position) => {
      if (!node) return;
      position < sees ? node.removeAttribute("data-dim") : node.setAttribute("data-dim", "");
      if (position < context) return;
      const fate = now.drafts[position - context];
      node.dataset.fate = fate;
      node.setAttribute("aria-pressed", String(fate === "rejected"));
      node.querySelector(".mk-mark").textContent = MARKS[fate] ?? "";
    });
    for (const line of lines) {
      const position = Number(line.dataset.position);
      const shown = output && position < sees;
      line.setAttribute("visibility", shown ? "visible" : "hidden");
      if (!shown) continue;
      line.dataset.kind = kind(position);
      const [x0, y0, x1, y1] = [middle(output.position), outY + boxHeight + 2, middle(position), inY - (position >= context && MARKS[now.drafts[position - context]] ? 16 : 2)];
      line.setAttribute("d", `M${x0} ${y0}C${x0} ${y0 + FAN * 0.55} ${x1} ${y1 - FAN * 0.5} ${x1} ${y1}`);
    }
    rows.forEach((row, i) => {
      const { index, fate } = now.outputs[i];
      index === chosen ? row.setAttribute("data-chosen", "") : row.removeAttribute("data-chosen");
      fate === "void" ? row.setAttribute("data-void", "") : row.removeAttribute("data-void");
      for (const cell of row.querySelectorAll(".mk-cell")) cell.dataset.kind = kind(Number(cell.dataset.position));
    });
  }

  return { svg, paint, focusOutput: (i) => outputs[i]?.focus(), outputs, drafts };
}
