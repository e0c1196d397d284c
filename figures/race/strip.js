// The time of one lane: a bar for each pass (the target's tall and blue, the draft's low and amber), a grey line
// where neither model worked, and above each pass of the target the tokens it brought, stacked. The bars are
// made once; a clip follows the playhead, a shift follows the window, so playing changes two numbers.

import { h, s, uid } from "#sd/dom.js";

const BAR = 20, LOW = 11, LINE = 3, GAP = 3;

export function createStrip({ name, label, onPoint, onPick, describe }) {
  const id = uid("clip");
  const bars = s("g", {}), pips = s("g", {}), idle = s("rect", { class: "rc-idle", x: 0, height: LINE });
  const shift = s("g", {}, idle, bars, pips);
  const clip = s("rect", { x: 0, y: 0, width: 0 });
  const chosen = s("rect", { class: "rc-chosen", rx: 2, visibility: "hidden" });
  const head = s("line", { class: "rc-head", y1: 0 });
  const flag = s("text", { class: "rc-flag" });
  const inner = s("g", {}, chosen);
  const svg = s("svg", { class: "rc-strip", role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0 },
    s("defs", {}, s("clipPath", { id }, clip)), s("g", { "clip-path": `url(#${id})` }, shift), inner, head, flag);
  const element = h("div", { class: "rc-striprow", dataset: { lane: name } }, svg);

  let lane = null, drawn = 0, scale = 0, places = 0, stack = 0, pip = 5, from = 0, width = 0, current = 0, seen = 0;
  const top = () => stack + GAP;
  const base = () => top() + BAR;

  /** The bar, and the pips above it, of one pass. */
  function draw(pass) {
    const x = pass.start * scale, w = Math.max(0.6, (pass.end - pass.start) * scale);
    const model = pass.kind === "draft" || (pass.kind === "prefill" && pass.by) ? "draft" : "target";
    const tall = model === "target" ? BAR : LOW;
    // Neighbours stay apart while there is room for it.
    const slit = w > 4 ? 1 : w > 2 ? 0.5 : 0;
    bars.append(s("rect", { class: "rc-bar", dataset: { model, kind: pass.kind, by: pass.by ?? "" }, x: x.toFixed(2), y: base() - tall, width: Math.max(0.6, w - slit).toFixed(2), height: tall }));
    if (model === "draft") return;
    const size = Math.max(1.5, Math.min(pip, w - slit));
    const right = x + w - slit - size;
    pass.tokens.forEach((token, i) => {
      const y = top() - GAP - (i + 1) * (pip + 1) + 1;
      const at = { class: "rc-pip", dataset: { origin: token.origin } };
      if (token.origin === "rejected") pips.append(s("path", { ...at, d: `M${right} ${y}l${size} ${pip}m0 ${-pip}l${-size} ${pip}` }));
      else if (token.origin === "bonus" && size > 3) pips.append(s("rect", { ...at, x: right + 0.75, y: y + 0.75, width: size - 1.5, height: pip - 1.5 }));
      else pips.append(s("rect", { ...at, x: right, y, width: size, height: pip }));
    });
  }

  function grow() { for (; drawn < lane.passes.length; drawn++) draw(lane.passes[drawn]); }

  /** The pass under a place on the screen; near ones count too, for fingers. */
  function under(event) {
    const box = svg.getBoundingClientRect();
    const time = (event.clientX - box.left) / scale + from;
    let best = null, distance = 12 / scale;
    for (let i = 0; i < seen; i++) {
      const { start, end } = lane.passes[i];
      const away = time < start ? start - time : time > end ? time - end : 0;
      if (away < distance) { best = lane.passes[i]; distance = away; }
    }
    return best;
  }
  svg.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") onPoint(under(event)); });
  svg.addEventListener("pointerleave", () => onPoint(null));
  svg.addEventListener("click", (event) => { const pass = under(event); if (pass) { current = pass.index; onPick(pass, false); } });
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowRight: current + 1, ArrowUp: current + 1, ArrowLeft: current - 1, ArrowDown: current - 1, Home: 0, End: seen - 1, PageUp: current + 10, PageDown: current - 10 }[event.key];
    if (event.key === "Escape") { onPick(null, false); return; }
    const seek = event.key === "Enter" || event.key === " ";
    if ((to === undefined && !seek) || seen === 0) return;
    event.preventDefault();
    current = Math.max(0, Math.min(lane.passes.length - 1, to ?? current));
    onPick(lane.passes[current], seek || current >= seen);
  });

  return {
    element,
    setLane(next) { lane = next; drawn = 0; current = 0; scale = 0; },
    /** Lay everything out for a scale (pixels a second), a width and the height of the stack of tokens. */
    layout(pixels, w, tokens) {
      if (pixels === scale && w === width && tokens === places) { grow(); return; }
      [scale, width, places] = [pixels, w, tokens];
      pip = tokens > 8 ? 3 : 5;
      stack = tokens * (pip + 1) + 1;
      bars.replaceChildren();
      pips.replaceChildren();
      drawn = 0;
      grow();
      const height = base() + 2;
      svg.setAttribute("width", w);
      svg.setAttribute("height", height);
      clip.setAttribute("height", height);
      idle.setAttribute("y", base() - LINE);
      head.setAttribute("y2", height);
      flag.setAttribute("y", base() - 5);
    },
    /** Show the lane at a time: `start` is where the window begins, `n` how many passes have ended. */
    show(time, start, n, pass, finished) {
      from = start;
      seen = n;
      const x = (time - from) * scale;
      const end = Math.min(time, lane.finish ?? time);
      shift.setAttribute("transform", `translate(${(-from * scale).toFixed(2)} 0)`);
      clip.setAttribute("width", Math.max(0, x).toFixed(2));
      idle.setAttribute("width", (end * scale).toFixed(2));
      head.setAttribute("x1", x.toFixed(2));
      head.setAttribute("x2", x.toFixed(2));
      flag.textContent = finished ?? "";
      if (finished) {
        const place = (lane.finish - from) * scale + 6;
        const fits = place + finished.length * 7 < width;
        flag.setAttribute("x", fits ? place : (lane.finish - from) * scale - 6);
        flag.setAttribute("text-anchor", fits ? "start" : "end");
        flag.setAttribute("y", fits ? base() - 5 : Math.max(11, top() - GAP - pip - 4));
      }
      chosen.setAttribute("visibility", pass ? "visible" : "hidden");
      if (pass) {
        const w = Math.max(2, (pass.end - pass.start) * scale);
        for (const [key, value] of Object.entries({ x: ((pass.start - from) * scale - 1.5).toFixed(2), y: 1, width: (w + 3).toFixed(2), height: base() })) chosen.setAttribute(key, value);
        current = pass.index;
      }
      svg.setAttribute("aria-valuemax", Math.max(0, lane.passes.length - 1));
      svg.setAttribute("aria-valuenow", current);
      const said = lane.passes[current] && current < seen ? describe(lane.passes[current]) : label;
      if (svg.getAttribute("aria-valuetext") !== said) svg.setAttribute("aria-valuetext", said);
    },
  };
}
