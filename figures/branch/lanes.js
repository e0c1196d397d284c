// One timeline of `branch`: a head in words, two rows of bars, a playhead, a bracket for what was saved.
// Bars are kept and their attributes changed, so that dragging a slider builds nothing.

import { h, s, uid } from "#sd/dom.js";
import { linear } from "#sd/scale.js";

const ROW = 22, GAP = 4, TOP = 2;
const HEIGHT = TOP + 2 * ROW + GAP + 4;

// kind → [row, fill, stroke]
const LOOK = {
  condition: [0, "var(--sd-target-soft)", "var(--sd-target)"],
  body: [1, "var(--sd-sunken)", "var(--sd-line-strong)"],
  ahead: [1, "var(--sd-accepted-soft)", "var(--sd-accepted)"],
  wasted: [1, "hatch", "var(--sd-rejected)"],
  rollback: [1, "var(--sd-rejected)", "var(--sd-rejected)"],
  redo: [1, "var(--sd-supplied-soft)", "var(--sd-supplied)"],
  pass: [0, "var(--sd-target)", "var(--sd-target)"],
  draft: [0, "var(--sd-draft)", "var(--sd-draft)"],
  vain: [0, "hatch", "var(--sd-draft)"],
};

export const STYLE = `
.br-top { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: var(--sd-3) var(--sd-5); align-items: start; }
.br-code { margin: 0; font: var(--sd-size-s)/1.55 var(--sd-font-mono); background: var(--sd-sunken); border-radius: var(--sd-radius); padding: var(--sd-3) var(--sd-4); overflow-x: auto; }
.br-code b { color: var(--sd-ink-3); font-weight: 400; }
.br-cond { background: var(--sd-target-soft); color: var(--sd-target-ink); border-radius: 3px; padding: 1px 3px; }
.br-who { display: grid; gap: var(--sd-2); min-width: 0; justify-items: start; }
.br-who .sd-wide { width: 100%; max-width: 30em; }
.br-who .sd-controls { margin: 0; width: 100%; }
.br-patterns { display: flex; flex-wrap: wrap; gap: var(--sd-1); }
.br-patterns button { font-family: var(--sd-font-mono); padding-inline: 8px; }
.br-strip { margin: var(--sd-4) 0 var(--sd-3); display: grid; gap: var(--sd-2); }
.br-row { display: grid; grid-template-columns: 3.6em repeat(var(--columns), minmax(0, 1fr)); gap: 3px; max-width: calc(3.6em + var(--columns) * 64px); }
.br-heads, .sd-figure .br-chip { display: grid; grid-auto-rows: 1.45em; font-size: 12px; line-height: 1.45em; }
.br-heads { color: var(--sd-ink-3); padding: 4px 0; border: 1px solid transparent; }
.sd-figure .br-chip { padding: 4px 0; min-width: 0; min-height: 0; text-align: center; font-variant-numeric: tabular-nums; border-color: var(--sd-line); touch-action: manipulation; }
.sd-figure .br-chip[data-right="true"] { border-color: var(--sd-accepted); background: var(--sd-accepted-soft); }
.sd-figure .br-chip[data-right="false"] { border-color: var(--sd-rejected); background: var(--sd-rejected-soft); border-style: dashed; }
.sd-figure .br-chip:hover:not(:disabled) { background: var(--sd-sunken); }
.br-index, .br-x, .br-memory { color: var(--sd-ink-3); }
.br-index { font-size: 11px; }
.br-x { color: var(--sd-ink); }
.br-guess { color: var(--sd-draft-ink); font-weight: 650; }
.br-truth { color: var(--sd-target-ink); font-weight: 650; }
.br-chip[data-right="true"] .br-verdict { color: var(--sd-accepted-ink); font-weight: 700; }
.br-chip[data-right="false"] .br-verdict { color: var(--sd-rejected-ink); font-weight: 700; }
.br-lane { margin-top: var(--sd-3); }
.br-lanehead { display: flex; flex-wrap: wrap; gap: 0 var(--sd-4); align-items: baseline; font-size: var(--sd-size-s); margin-bottom: 3px; }
.br-lanehead b { font-weight: 650; }
.br-lanehead span { font-variant-numeric: tabular-nums; }
.br-lanehead .br-vars { margin-inline-start: auto; color: var(--sd-ink-2); }
.br-overlay { border-inline-start: 3px solid var(--sd-target); padding-inline-start: 8px; margin-inline-start: -11px; }
.sd-figure .br-lane svg text { font-size: 11px; font-variant-numeric: tabular-nums; }
.sd-figure svg text.br-tick { font-size: 11px; fill: var(--sd-ink-3); }
.sd-figure svg text.br-on { fill: var(--sd-raised); font-weight: 650; }
.sd-figure svg text.br-gain { font-weight: 650; fill: var(--sd-accepted-ink); font-size: 12px; }
.sd-figure svg text.br-gain[data-lost] { fill: var(--sd-rejected-ink); }
.br-mapping .sd-note { margin-top: var(--sd-2); }
.br-map th:first-child, .br-map td:first-child { padding-inline-end: var(--sd-5); }
@container (max-width: 620px) {
  .br-top { grid-template-columns: minmax(0, 1fr); }
  .br-who .sd-segments span { padding-inline: 7px; }
  .br-row { grid-template-columns: 2.9em repeat(var(--columns), minmax(0, 1fr)); gap: 2px; }
}
@media print { .br-who > .sd-control, .br-patterns, .br-chance { display: none; } }
`;

/** The hatch that every lane uses, and small pictures of the marks for a legend. */
export function patterns() {
  const hatch = uid("hatch");
  const svg = s("svg", { width: 0, height: 0, "aria-hidden": "true", style: { position: "absolute" } },
    s("defs", {}, s("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: 6, height: 6, fill: "var(--sd-rejected-soft)" }), s("rect", { width: 2, height: 6, fill: "var(--sd-rejected)" }))));
  const ids = { hatch: `url(#${hatch})` };
  const swatch = (kind) => {
    const box = s("svg", { width: 18, height: 14, "aria-hidden": "true" });
    if (kind === "guess") box.append(s("rect", { x: 6, y: 1, width: 4, height: 12, fill: "var(--sd-draft)" }));
    else if (LOOK[kind]) box.append(s("rect", { x: 1, y: 1, width: 16, height: 12, rx: 2, ...paint(kind, ids) }));
    else box.append(dot(s("path", {}), kind, 9, 7));
    return box;
  };
  return { svg, ids, swatch };
}

const paint = (kind, ids) => ({ fill: LOOK[kind][1] === "hatch" ? ids.hatch : LOOK[kind][1], stroke: LOOK[kind][2] });

/** A written token: the shape says what the colour says. */
function dot(node, origin, x, y, r = 5) {
  const square = `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  const round = `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  const diamond = `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z`;
  const [d, fill, stroke] = {
    target: [square, "var(--sd-target)", "var(--sd-target)"],
    accepted: [round, "var(--sd-accepted)", "var(--sd-accepted)"],
    supplied: [diamond, "var(--sd-supplied)", "var(--sd-supplied)"],
    bonus: [round, "var(--sd-raised)", "var(--sd-bonus)"],
  }[origin];
  for (const [name, value] of Object.entries({ d, fill, stroke, "stroke-width": origin === "bonus" ? 2.5 : 1 })) node.setAttribute(name, value);
  return node;
}

/** Nodes kept between drawings: `next()` hands out one after another, `rest()` removes the others. */
function pool(parent, tag) {
  const nodes = [];
  let used = 0;
  return {
    next(attributes) {
      const node = nodes[used] ?? (nodes[used] = parent.appendChild(s(tag, {})));
      used++;
      for (const [name, value] of Object.entries(attributes)) if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
      return node;
    },
    rest() { for (const node of nodes.splice(used)) node.remove(); used = 0; },
  };
}

/**
 * A lane. `rows`: keys of the two rows' names. draw(lane, {width, end, title, units, label, bracket, now});
 * playhead(time or null, words); timeAt(event); scale(width, end).
 */
export function createLane({ t, id, rows }) {
  const title = h("b", {}), units = h("span", {}), vars = h("span", { class: "br-vars" });
  const bars = s("g", {}), edges = s("g", {}), texts = s("g", {}), dots = s("g", {});
  const veil = s("rect", { y: 0, height: HEIGHT, fill: "var(--sd-raised)", opacity: 0.78 });
  const line = s("line", { y1: 0, y2: HEIGHT, stroke: "var(--sd-ink)", "stroke-width": 1.5 });
  const bracketLine = s("path", { fill: "none", stroke: "var(--sd-line-strong)", "stroke-dasharray": "3 3" });
  const bracketText = s("text", { y: TOP + ROW + GAP / 2 + 4, class: "br-gain" });
  const names = rows.map((key, i) => s("text", { x: 0, y: TOP + i * (ROW + GAP) + ROW / 2 + 4, class: "br-tick" }, t(key)));
  const svg = s("svg", { role: "img", height: HEIGHT }, names, bars, edges, texts, dots, bracketLine, bracketText, veil, line);
  const element = h("div", { class: "br-lane" }, h("div", { class: "br-lanehead" }, title, units, vars), svg);
  const pools = { bars: pool(bars, "rect"), edges: pool(edges, "rect"), texts: pool(texts, "text"), dots: pool(dots, "path") };
  let x = linear([0, 1], [0, 1]), right = 0;

  const scale = (width, end) => linear([0, end], [width < 480 ? 36 : 48, width - 2]);

  function text(content, at, y, kind) {
    const node = pools.texts.next({ x: at, y, "text-anchor": "middle", class: kind });
    if (node.textContent !== content) node.textContent = content;
  }

  function draw(lane, { width, end, title: words, units: length, label, bracket, now }) {
    x = scale(width, end);
    right = width;
    svg.setAttribute("width", width);
    svg.setAttribute("aria-label", label);
    title.textContent = words;
    units.textContent = length;
    for (const segment of lane.segments) {
      const row = LOOK[segment.kind][0];
      const [left, w] = [x(segment.start), x(segment.end) - x(segment.start)];
      const y = TOP + row * (ROW + GAP);
      const dropped = segment.fate === "dropped" || segment.fate === "rejected";
      pools.bars.next({ x: left + 0.5, y, width: Math.max(0.5, w - 1), height: ROW, rx: Math.min(3, w / 4), "stroke-width": 1, ...paint(dropped ? "vain" : segment.kind, id) });
      if (segment.kind === "ahead" || segment.kind === "wasted")
        pools.edges.next({ x: left, y, width: Math.min(3.5, w / 2), height: ROW, fill: "var(--sd-draft)" });
      const inside = { condition: String(segment.index + 1), pass: String(lane.segments.filter((z) => z.kind === "pass" && z.start <= segment.start).length), body: now.outcomes[segment.index] ? "T" : "N", redo: now.outcomes[segment.index] ? "T" : "N", ahead: now.guesses[segment.index] ? "T" : "N", wasted: "", rollback: "R", draft: "" }[segment.kind];
      if (inside && w >= 8 + 6.5 * inside.length) text(inside, left + w / 2 + (segment.kind === "ahead" ? 1 : 0), y + ROW / 2 + 4, segment.kind === "pass" || segment.kind === "rollback" ? "br-on" : "br-in");
    }
    // Tokens of one pass are written at one moment: they stand side by side, ending there.
    const groups = new Map();
    for (const token of lane.emitted) groups.set(token.time, [...(groups.get(token.time) ?? []), token]);
    let before = 0;
    for (const [time, tokens] of groups) {
      const step = Math.min(13, (x(time) - x(before)) / tokens.length);
      const r = Math.min(5, step / 2 - 0.5);
      tokens.forEach((token, i) => dot(pools.dots.next({}), token.origin, x(time) - r - 1 - (tokens.length - 1 - i) * step, TOP + ROW + GAP + ROW / 2, r));
      before = time;
    }
    const wide = bracket ? x(bracket.to) - x(bracket.from) : 0;
    const middle = TOP + ROW + GAP / 2;
    bracketText.textContent = bracket?.text ?? "";
    const room = bracket ? bracket.text.length * 7.5 + 14 : 0;
    if (bracket && wide > 6) {
      const [a, b] = [x(bracket.from) + 3, x(bracket.to) - 1];
      bracketLine.setAttribute("d", `M${b} ${TOP}V${TOP + 2 * ROW + GAP}M${a} ${middle}H${b}`);
      bracketText.setAttribute("x", wide > room ? (a + b) / 2 : b);
      bracketText.setAttribute("text-anchor", wide > room ? "middle" : "end");
      bracketText.setAttribute("paint-order", "stroke");
      bracketText.setAttribute("stroke", "var(--sd-raised)");
      bracketText.setAttribute("stroke-width", 5);
      if (wide <= room) bracketText.textContent = "";
    } else {
      bracketLine.setAttribute("d", "");
      bracketText.textContent = "";
    }
    if (bracket?.lost) bracketText.dataset.lost = ""; else delete bracketText.dataset.lost;
    for (const each of Object.values(pools)) each.rest();
  }

  return {
    element, svg, draw, scale,
    playhead(time, words) {
      const hidden = time === null;
      veil.setAttribute("visibility", hidden ? "hidden" : "visible");
      line.setAttribute("visibility", hidden ? "hidden" : "visible");
      if (!hidden) {
        veil.setAttribute("x", x(time));
        veil.setAttribute("width", Math.max(0, right - x(time)));
        line.setAttribute("x1", x(time));
        line.setAttribute("x2", x(time));
      }
      if (vars.textContent !== words) vars.textContent = words;
    },
    timeAt: (event) => x.invert(event.clientX - svg.getBoundingClientRect().left),
  };
}
