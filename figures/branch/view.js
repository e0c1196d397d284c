// Draws `branch`: a strip of iterations whose guesses the reader turns right or wrong, two timelines of
// the same loop (waiting, guessing) on one scale with a playhead, and, on request, two more for a language model
// that makes the same guesses. All lengths come from `model.js`.

import { frame } from "#sd/frame.js";
import { button, numberField, segments, slider, textField, toggle } from "#sd/controls.js";
import { frameThrottle, h, s } from "#sd/dom.js";
import { fixed, num, percent } from "#sd/format.js";
import { update } from "#sd/model.js";
import { createPlayer, transport } from "#sd/player.js";
import { ticks } from "#sd/scale.js";
import { certain, scene } from "./model.js";
import { STYLE, createLane, patterns } from "./lanes.js";

const NAMES = ["n", "pattern", "mode", "wrong", "accuracy", "seed", "condition", "body", "rollback", "m", "c"];
const PATTERNS = ["T", "TTTN", "TN", "TTTTNNNN"];

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const params = () => Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
  const letter = (truth) => (truth ? "T" : "N");
  let now = scene(params());
  let width = 0;
  f.badge("ideal");

  // --- the iterations ------------------------------------------------------------------------------

  const strip = h("div", { class: "br-strip", role: "group", "aria-label": t("chip.rows") });
  let chips = [];
  let current = 0; // the one chip in the tab order; arrows move it

  function flip(i) {
    current = i;
    // Not `now`: it follows at the next frame, and a second key may come before it.
    const wrong = scene(params()).right.reduce((bits, right, j) => bits | (right ? 0 : 1 << j), 0) ^ (1 << i);
    update(model, { mode: "hand", wrong });
    f.announce(describe(scene(params())));
  }

  function buildStrip() {
    const n = now.right.length;
    const focused = chips.findIndex((chip) => chip.button === document.activeElement);
    const perRow = width < 560 && n > 8 ? Math.ceil(n / 2) : n;
    const withMemory = now.memory.length > 0 && model.get("mode") !== "taken";
    chips = now.right.map((_, i) => {
      const cells = Object.fromEntries(["index", "x", "memory", "guess", "truth", "verdict"].map((name) => [name, h("span", { class: `br-${name}` })]));
      const chip = h("button", { type: "button", class: "br-chip" }, Object.entries(cells).filter(([name]) => name !== "memory" || withMemory).map(([, cell]) => cell));
      chip.addEventListener("click", () => flip(i));
      chip.addEventListener("keydown", (event) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1, ArrowDown: i + perRow, ArrowUp: i - perRow, Home: 0, End: n - 1 }[event.key];
        if (to === undefined || !chips[to]) return;
        event.preventDefault();
        current = to;
        drawStrip();
        chips[to].button.focus();
      });
      return { button: chip, cells };
    });
    const heads = () => h("div", { class: "br-heads", "aria-hidden": "true" }, ["", t("chip.value"), ...(withMemory ? [t("chip.memory")] : []), t("chip.guess"), t("chip.truth"), ""].map((text) => h("span", {}, text)));
    const rows = [];
    for (let i = 0; i < n; i += perRow) {
      const row = chips.slice(i, i + perRow).map((chip) => chip.button);
      rows.push(h("div", { class: "br-row", style: { "--columns": perRow } }, heads(), row));
    }
    strip.replaceChildren(...rows);
    if (focused >= 0) chips[Math.min(focused, n - 1)].button.focus();
    strip.dataset.shape = `${n} ${perRow} ${withMemory}`;
  }

  function drawStrip() {
    const n = now.right.length;
    const perRow = width < 560 && n > 8 ? Math.ceil(n / 2) : n;
    const withMemory = now.memory.length > 0 && model.get("mode") !== "taken";
    if (strip.dataset.shape !== `${n} ${perRow} ${withMemory}`) buildStrip();
    current = Math.min(current, n - 1);
    chips.forEach(({ button: chip, cells }, i) => {
      const verdict = t(now.right[i] ? "chip.right" : "chip.wrong");
      cells.index.textContent = i + 1;
      cells.x.textContent = now.values[i];
      cells.memory.textContent = withMemory ? (model.get("mode") === "onebit" ? letter(now.memory[i]) : now.memory[i]) : "";
      cells.guess.textContent = letter(now.guesses[i]);
      cells.truth.textContent = letter(now.outcomes[i]);
      cells.verdict.textContent = now.right[i] ? "✓" : "✗";
      chip.dataset.right = now.right[i];
      chip.tabIndex = i === current ? 0 : -1;
      chip.setAttribute("aria-label", t("chip.label", { index: i + 1, x: now.values[i], guess: letter(now.guesses[i]), truth: letter(now.outcomes[i]), verdict }));
    });
  }

  const code = h("pre", { class: "br-code" },
    "total = skipped = 0\nfor x in values:\n    if ", h("mark", { class: "br-cond" }, "x >= 50"), ":\n        total += x      ", h("b", {}, "# T"), "\n    else:\n        skipped += 1    ", h("b", {}, "# N"));

  const modeNote = h("p", { class: "sd-note" });
  const misses = h("p", { class: "sd-note" });
  const chance = h("div", { class: "sd-controls br-chance" },
    slider(on, model, "accuracy", { label: t("control.accuracy"), format: (x) => percent(x, lang) }),
    numberField(on, model, "seed", { label: t("ui.seed"), width: "5.5em" }),
    button(on, t("ui.random"), () => update(model, { seed: Math.floor(Math.random() * 10000) })));
  const presets = h("div", { class: "br-patterns" }, PATTERNS.map((text) => {
    const choose = button(on, text, () => update(model, { pattern: text }), { label: t("control.pattern_try", { pattern: text }) });
    on.follow(model, "pattern", () => choose.setAttribute("aria-pressed", String(model.get("pattern") === text)));
    return choose;
  }));

  // --- the timelines ---------------------------------------------------------------------------------

  const defs = patterns();
  const lanes = {
    waiting: createLane({ t, id: defs.ids, rows: ["lane.check", "lane.run"] }),
    guessing: createLane({ t, id: defs.ids, rows: ["lane.check", "lane.run"] }),
    alone: createLane({ t, id: defs.ids, rows: ["lane.models", "lane.text"] }),
    together: createLane({ t, id: defs.ids, rows: ["lane.models", "lane.text"] }),
  };
  on.listen(lanes.guessing.svg, "click", (event) => {
    const time = lanes.guessing.timeAt(event);
    const i = now.guessing.commits.findIndex((commit) => time < commit.time);
    if (time >= 0 && i >= 0) flip(i);
  });
  const axis = s("svg", { "aria-hidden": "true", height: 30 });
  const marks = ["condition", "body", "ahead", "wasted", "rollback", "redo"];
  const legend = h("ul", { class: "sd-legend" }, marks.map((kind) => h("li", {}, defs.swatch(kind), t(`mark.${kind}`))), h("li", {}, defs.swatch("guess"), t("mark.guess")));
  const legendModels = h("ul", { class: "sd-legend" }, [["pass", "ui.mark_target"], ["draft", "ui.mark_draft"], ["vain", "mark.vain"], ["accepted", "ui.mark_accepted"], ["supplied", "ui.mark_supplied"], ["bonus", "ui.mark_bonus"]].map(([kind, key]) => h("li", {}, defs.swatch(kind), t(key))));
  const same = h("table", { class: "sd-table br-map" },
    h("caption", {}, t("map.title")),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("map.cpu")), h("th", { scope: "col" }, t("map.llm")))),
    h("tbody", {}, ["guess", "check", "back", "same"].map((row) => h("tr", {}, h("td", {}, t(`map.${row}_cpu`)), h("td", {}, t(`map.${row}_llm`))))));
  const overlay = h("div", { class: "br-overlay" }, lanes.alone.element, lanes.together.element, legendModels);
  const llmControls = h("div", { class: "sd-controls" },
    slider(on, model, "m", { label: t("control.m") }),
    slider(on, model, "c", { label: t("control.c"), format: (x) => fixed(x, 2, lang) }));
  const mapping = h("div", { class: "br-mapping" }, llmControls, h("div", { class: "sd-tablewrap" }, same), h("p", { class: "sd-note" }, t("map.note")));

  const longest = () => Math.max(now.without.end, now.guessing.end, ...(model.get("llm") ? [now.alone.end, now.together.end] : []));
  const player = createPlayer(on, model, {
    duration: longest,
    rate: () => (longest() / 10) * model.get("speed"),
    element: f.stage,
    next(time, direction) {
      const shown = [now.without, now.guessing, ...(model.get("llm") ? [now.alone, now.together] : [])];
      const times = [0, ...shown.flatMap((lane) => lane.segments.flatMap((x) => [x.start, x.end]))].sort((a, b) => a - b);
      return direction > 0 ? times.find((x) => x > time + 1e-9) ?? longest() : times.findLast((x) => x < time - 1e-9) ?? 0;
    },
  });

  function describe(state) {
    const { n } = params();
    const without = state.without.end, guess = state.guessing.end;
    const last = state.without.commits.at(-1);
    const key = guess < without ? "faster" : guess > without ? "slower" : "even";
    const sentences = [
      t(`say.${key}`, { n, right: state.right.filter(Boolean).length, without: num(without, lang), guessing: num(guess, lang), speedup: fixed(without / guess, 2, lang), lost: num(guess - without, lang) }),
      t("say.breakeven", { share: percent(state.breakeven, lang), total: last.total, skipped: last.skipped }),
    ];
    if (model.get("llm"))
      sentences.push(t("say.llm", { n, m: model.get("m"), passes: state.together.segments.filter((x) => x.kind === "pass").length, speedup: fixed(state.alone.end / state.together.end, 2, lang) }));
    return sentences.join(lang === "zh" ? "" : " ");
  }

  function numbers() {
    const rows = [["iteration", "value", "truth", "guess", "verdict", "without", "guessing"].map((c) => t(`table.${c}`))];
    now.right.forEach((right, i) => rows.push([String(i + 1), String(now.values[i]), letter(now.outcomes[i]), letter(now.guesses[i]), t(right ? "chip.right" : "chip.wrong"), num(now.without.commits[i].time, lang), num(now.guessing.commits[i].time, lang)]));
    rows.push([t("table.total"), "", "", "", "", num(now.without.end, lang), num(now.guessing.end, lang)]);
    if (model.get("llm")) {
      rows.push([t("table.alone"), "", "", "", "", num(now.alone.end, lang), ""]);
      rows.push([t("table.together"), "", "", "", "", "", num(now.together.end, lang)]);
    }
    return rows;
  }

  // --- drawing ---------------------------------------------------------------------------------------

  const head = (name, lane, vars) => ({
    title: t(`lane.${name}`), units: t("lane.units", { time: num(lane.end, lang) }), vars,
    label: t("lane.label", { lane: t(`lane.${name}`), time: num(lane.end, lang) }),
  });

  /** The playhead and what is certain there: all that changes while the figure plays. */
  function drawTime() {
    const time = player.time;
    const whole = time >= longest();
    for (const [name, data] of [["waiting", now.without], ["guessing", now.guessing]]) {
      const { total, skipped } = certain(data, time);
      const vars = t("lane.variables", { total, skipped });
      lanes[name].playhead(whole ? null : time, whole && name === "guessing" ? `${vars} ✓ ${t("lane.same")}` : vars);
    }
    for (const name of ["alone", "together"]) {
      const count = now[name].emitted.filter((x) => x.time <= time + 1e-9).length;
      lanes[name].playhead(whole ? null : time, t("lane.tokens", { count, n: params().n }));
    }
  }

  function drawAxis(end) {
    const scale = lanes.waiting.scale(width, end);
    axis.setAttribute("width", width);
    const marksOf = ticks(0, end, width < 480 ? 4 : 9);
    const parts = [
      s("line", { x1: scale(0), x2: scale(end), y1: 0.5, y2: 0.5, stroke: "var(--sd-line-strong)" }),
      ...marksOf.flatMap((x) => [
        s("line", { x1: scale(x), x2: scale(x), y1: 0, y2: 4, stroke: "var(--sd-line-strong)" }),
        s("text", { x: scale(x), y: 17, "text-anchor": scale(x) > width - 12 ? "end" : "middle", class: "br-tick" }, num(x, lang)),
      ]),
      s("text", { x: scale(end), y: 29, "text-anchor": "end", class: "br-tick" }, t("lane.axis")),
    ];
    axis.replaceChildren(...parts);
  }

  function draw() {
    now = scene(params());
    if (width === 0) return;
    const llm = model.get("llm");
    const end = longest();
    drawStrip();
    modeNote.textContent = t(`mode.${model.get("mode")}`);
    misses.textContent = t("mode.misses", now.misses);
    chance.hidden = model.get("mode") !== "draw";
    overlay.hidden = mapping.hidden = !llm;
    const gap = now.without.end - now.guessing.end;
    const text = gap > 0 ? t("lane.saved", { time: num(gap, lang) }) : gap < 0 ? t("lane.lost", { time: num(-gap, lang) }) : "";
    const bracket = { from: Math.min(now.without.end, now.guessing.end), to: Math.max(now.without.end, now.guessing.end), text, lost: gap < 0 };
    lanes.waiting.draw(now.without, { width, end, ...head("waiting", now.without), bracket: gap < 0 ? bracket : null, now });
    lanes.guessing.draw(now.guessing, { width, end, ...head("guessing", now.guessing), bracket: gap > 0 ? bracket : null, now });
    if (llm) {
      lanes.alone.draw(now.alone, { width, end, ...head("alone", now.alone), bracket: null, now });
      const saved = now.alone.end - now.together.end;
      lanes.together.draw(now.together, { width, end, ...head("together", now.together), now, bracket: saved > 1e-9 ? { from: now.together.end, to: now.alone.end, text: t("lane.saved", { time: num(saved, lang) }) } : null });
    }
    drawAxis(end);
    drawTime();
    f.say(describe(now));
    f.table(numbers());
    if (now.right.filter(Boolean).length * 2 === now.right.length && model.get("rollback") > 0 && gap === 0) f.solve();
  }

  f.style(STYLE);
  f.stage.append(
    defs.svg,
    h("div", { class: "br-top" }, code, h("div", { class: "br-who" },
      segments(on, model, "mode", { label: t("control.mode"), options: ["hand", "draw", "taken", "onebit", "twobit"].map((value) => [value, t(`control.mode_${value}`)]) }),
      modeNote, chance, textField(on, model, "pattern", { label: t("control.pattern") }), presets, misses)),
    strip, lanes.waiting.element, lanes.guessing.element, overlay, axis, legend,
    transport(on, model, player, { t, duration: longest, format: (x) => t("lane.units", { time: num(x, lang) }), speeds: [0.5, 1, 2, 4] }));
  f.controls.append(
    slider(on, model, "condition", { label: t("control.condition") }),
    slider(on, model, "body", { label: t("control.body") }),
    slider(on, model, "rollback", { label: t("control.rollback") }),
    slider(on, model, "n", { label: t("control.n") }),
    toggle(on, model, "llm", { label: t("control.llm") }));
  f.controls.after(mapping);
  f.root.querySelector(".sd-foot").before(h("p", { class: "sd-note" }, t("note.ideal")));

  const redraw = frameThrottle(draw);
  const retime = frameThrottle(drawTime);
  on.add(() => { redraw.cancel(); retime.cancel(); });
  for (const name of [...NAMES, "llm"]) {
    model.on(`change:${name}`, redraw.request);
    on.add(() => model.off(`change:${name}`, redraw.request));
  }
  model.on("change:t", retime.request);
  on.add(() => model.off("change:t", retime.request));
  on.resize(f.stage, (w) => { width = w; draw(); });
  return () => f.end();
}
