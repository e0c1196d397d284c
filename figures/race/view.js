// Draws `race`: the two lanes' texts and time strips on one clock, the playback, one pass in full, the speed-up
// explained, and the choice of a run. The run and the connection live in `store.js`; the time on show, the
// pinned pass and the settings in the model; so this view can be thrown away and rendered again in mid-race.

import { frame } from "#sd/frame.js";
import { button, toggle } from "#sd/controls.js";
import { frameThrottle, h, s } from "#sd/dom.js";
import { duration, fixed, num, times } from "#sd/format.js";
import { update } from "#sd/model.js";
import { createPlayer, transport } from "#sd/player.js";
import { linear, ticks } from "#sd/scale.js";
import { createDetail } from "./detail.js";
import { createLadder } from "./ladder.js";
import { createLane } from "./lanes.js";
import { LANES, about, bet, counts, done, moment, neighbour, number, opening, parting } from "./model.js";
import { createPanel, request } from "./panel.js";
import { storeOf } from "./store.js";
import { createStrip } from "./strip.js";
import { STYLE } from "./style.js";
import { statistics } from "./table.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const PASS_PIXELS = 26; // of a plain pass, close up
const SLOW = 0.25; // seconds on the screen that a pass must last to be worth showing in full while playing

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const store = storeOf(model);
  let run = null; // the run that the elements below were made for
  let width = 0, hovered = null, rows = 0;
  let resume = store.playing; // a change of language came while it played

  const running = () => store.live.phase === "running" && store.kind === "live";

  // --- the parts -------------------------------------------------------------------------------------

  const panel = createPanel({ f, model, store, onStart() {
    store.start(...request(model));
    lanesBox.scrollIntoView({ block: "nearest", behavior: "instant" });
  } });
  const quote = h("q", {}), meta = h("span", { class: "rc-meta" });
  const promptBox = h("div", { class: "rc-prompt" }, h("b", {}, t("lane.prompt")), quote, meta);
  const lanes = {}, strips = {};
  for (const name of LANES) {
    const point = (pass) => { hovered = pass && [name, pass.index]; redraw.request(); };
    const pick = (pass, seek) => {
      hovered = null;
      const now = model.get("focus");
      const same = pass && now && now[0] === name && now[1] === pass.index && !seek;
      player.pause();
      if (pass && seek) model.set("t", pass.end);
      update(model, { focus: pass && !same ? [name, pass.index] : null });
    };
    lanes[name] = createLane({ name, t, onPoint: point, onPick: (pass) => pick(pass, false) });
    strips[name] = createStrip({
      name, label: t("lane.strip", { lane: t(`lane.${name}`) }), onPoint: point, onPick: pick,
      describe: (pass) => { const [key, values] = about(pass, lang); return `${pass.index + 1}/${run.lanes[name].passes.length}: ${t(`pass.${key}`, values)}`; },
    });
  }
  const axis = s("svg", { class: "rc-axis", height: 22, "aria-hidden": "true" });
  const lanesBox = h("div", { class: "rc-lanes" },
    LANES.map((name) => h("section", { class: "rc-lane", dataset: { lane: name } }, lanes[name].head, lanes[name].text, strips[name].element)), axis);
  const mark = (origin) => h("li", {}, h("span", { class: "rc-token", dataset: { origin } }, t(`ui.mark_${{ drafted: "draft" }[origin] ?? origin}`)));
  const swatch = (name, colour) => h("li", {}, h("i", { dataset: { mark: name }, style: { background: `var(${colour})` } }), t(`mark.${name}`));
  const legend = h("ul", { class: "sd-legend rc-legend", "aria-label": t("ui.legend") },
    ["target", "drafted", "accepted", "rejected", "supplied", "bonus"].map(mark), swatch("prefill", "--sd-target"), swatch("overhead", "--sd-overhead"));
  const detail = createDetail({ t, lang, onRelease: () => update(model, { focus: null }) });
  const account = createLadder({ t, lang });
  const proof = h("p", { class: "sd-note rc-proof" });
  const dropnote = h("div", { class: "rc-dropnote", hidden: true }, t("note.drop"));

  const length = () => run?.duration ?? 0;
  const player = createPlayer(on, model, {
    duration: length, rate: () => model.get("speed"), next: (time, direction) => (run ? neighbour(run, time, direction) : 0), element: lanesBox,
  });
  // While the view keeps up with a live race, the button that starts and stops the time stops that.
  const following = () => running() && model.get("follow");
  const states = new Set();
  const deck = Object.create(player, {
    playing: { get: () => player.playing || following() },
    toggle: { value: () => (following() ? update(model, { follow: false }) : player.toggle()) },
    onState: { value: (fn) => { states.add(fn); player.onState(fn); } },
  });
  const follow = button(on, t("control.follow"), () => { player.pause(); update(model, { follow: true }); atFrontier(); }, { quiet: true });
  const controls = h("div", { class: "rc-play" },
    transport(on, model, deck, { t, duration: length, format: (x) => duration(x, lang, 3), speeds: SPEEDS }),
    toggle(on, model, "close", { label: t("control.close") }), toggle(on, model, "keep", { label: t("control.keep") }), follow);
  f.style(STYLE);
  f.stage.append(panel.element, promptBox, lanesBox, h("p", { class: "rc-axisnote" }, t("lane.axis")), controls, f.root.querySelector(".sd-say"), proof, legend,
    h("div", { class: "rc-below" }, detail.element, account.element), dropnote);
  f.root.classList.add("rc-figure");

  // --- time ------------------------------------------------------------------------------------------

  let ours = false; // t moves because the race does, not because the reader does
  function set(time) { ours = true; model.set("t", time); ours = false; }
  function atFrontier() { set(store.run.duration); }
  on.follow(model, "t", () => {
    if (ours || store.showing) return;
    if (model.get("t") !== null) { if (model.get("follow")) model.set("follow", false); return; }
    // No time at all: the reader has reset the figure, and gets back the recording it began with.
    store.cancel();
    if (store.kind !== null && store.kind !== "recorded") store.showRecording(model.get("recording"));
  });

  /** How much time the strips span: the run, a round number ahead of a live one, or a close-up. */
  function span() {
    const whole = run.end ? length() : roundUp(length());
    if (!model.get("close")) return Math.max(whole, 1e-3);
    const pass = run.lanes.plain.passes.find((x) => x.kind === "decode");
    return Math.min(Math.max(whole, 1e-3), pass ? ((pass.end - pass.start) * width) / PASS_PIXELS : whole);
  }
  const window_ = (time, spanned) => Math.max(0, Math.min(time - spanned * 0.7, length() - spanned));

  function drawAxis(from, spanned) {
    const x = linear([from, from + spanned], [0, width - margin()]);
    axis.setAttribute("width", width);
    const marks = ticks(from, from + spanned, Math.max(2, Math.floor(width / 90)));
    axis.replaceChildren(...marks.flatMap((tick) => [
      s("line", { x1: x(tick), x2: x(tick), y1: 0, y2: 4 }),
      s("text", { x: x(tick), y: 17, "text-anchor": tick === 0 ? "start" : x(tick) > width - 30 ? "end" : "middle" }, tick === 0 ? "0" : duration(tick, lang, 4)),
    ]));
  }
  const margin = () => (width > 560 ? 118 : 60); // room for the time at which a lane is done
  const flag = (lane) => (width > 560 ? t("lane.finished", { t: duration(lane.finish, lang, 3) }) : duration(lane.finish, lang, 3));

  // --- drawing -----------------------------------------------------------------------------------------

  let axisKey = "", shape = "", wasPlaying = false;
  function adopt() {
    run = store.run;
    for (const name of LANES) { lanes[name].setLane(run.lanes[name]); strips[name].setLane(run.lanes[name]); }
    shape = "";
    const { header } = run;
    quote.textContent = header.settings.prompt;
    const { device, pair, settings } = header;
    const values = { target: pair.target, draft: pair.draft, device: [device.name, device.cores && `${device.cores}×`].filter(Boolean).join(" "), date: String(header.created).slice(0, 10) };
    const { source } = header;
    const kind = source ? "server" : settings.drafter === "lookup" || !pair.draft ? "lookup" : "draft";
    const m = source ? number(source, "m") : settings.m === "adaptive" ? t("lane.adaptive") : number(settings, "m") ?? 0;
    const set = { temperature: num(number(settings, "temperature") ?? 0, lang, 2), m: typeof m === "number" ? num(m, lang, 3) : m };
    meta.textContent = [t(`lane.with_${kind}`, source ? { ...values, server: source.server } : values), t(m === null ? "lane.temperature" : "lane.settings", set)].join(lang === "zh" ? "；" : "; ");
    const machine = [device.name, values.date].join(", ");
    f.badge([store.kind === "live" ? "live" : "recorded", store.kind === "live" ? device.name : machine]);
    const { max, default: usual } = model.get("schema").m;
    rows = (settings.m === "adaptive" ? max : number(settings, "m") ?? usual) + 1;
    detail.reserve(Math.min(rows, 7));
    detail.show(null, null);
  }

  /** Tokens above the busiest pass, the rejected one included; for a live race an expectation. */
  function tallest() {
    const seen = Math.max(1, ...run.lanes.speculative.passes.map((x) => (x.kind === "verify" ? x.tokens.length : 1)));
    return run.end ? seen : Math.max(seen, Math.min(rows, 6));
  }

  /** Room for the texts changes with the width and when the whole text is known. */
  function reserve() {
    const next = `${width} ${LANES.map((name) => run.lanes[name].finish !== null)} ${lang}`;
    if (next === shape) return;
    shape = next;
    for (const name of LANES) lanes[name].reserve(number(run.header, "settings", "length") ?? 96);
  }

  function draw() {
    if (!store.run || width === 0) return;
    if (store.run !== run) adopt();
    if (resume) { resume = false; player.play(); }
    if (model.get("t") === null) set(store.kind === "live" ? length() : opening(run));
    const time = Math.min(model.get("t"), length());
    const spanned = span(), from = model.get("close") ? window_(time, spanned) : 0;
    const scale = (width - margin()) / spanned;
    lanesBox.classList.toggle("rc-keep", model.get("keep"));
    const focus = focused(time);
    for (const name of LANES) {
      const lane = run.lanes[name], now = counts(lane, time), n = done(lane, time);
      const mine = focus && focus[0] === name ? lane.passes[focus[1]] : null;
      lanes[name].show(n);
      lanes[name].numbers(t("lane.count", { tokens: num(now.tokens, lang, 6), passes: num(now.target_passes, lang, 6) }), now.rate ? t("lane.rate", { rate: num(now.rate, lang, 3) }) : "");
      lanes[name].mark(mine ? mine.index : null);
      strips[name].layout(scale, width, name === "plain" ? 1 : tallest());
      strips[name].show(time, from, n, mine, now.finished ? flag(lane) : null);
    }
    reserve();
    const key = `${from} ${spanned} ${width}`;
    if (key !== axisKey) { axisKey = key; drawAxis(from, spanned); }
    drawDetail(time, focus);
    account.show(run, time);
    drawWords(time);
    follow.hidden = !running() || model.get("follow");
    if (deck.playing !== wasPlaying) { wasPlaying = deck.playing; for (const fn of states) fn(); }
  }

  /** The pass to show: what the reader points at, what they pinned, else nothing. */
  function focused() {
    const wanted = hovered ?? model.get("focus");
    return wanted && run.lanes[wanted[0]]?.passes[wanted[1]] ? wanted : null;
  }

  function drawDetail(time, focus) {
    const pinned = Boolean(model.get("focus"));
    if (focus) { detail.show(run.lanes[focus[0]], run.lanes[focus[0]].passes[focus[1]], { pinned }); return; }
    // Nothing chosen: the pass that has just ended, unless they fly past too fast to read.
    const lane = run.lanes.speculative, pass = lane.passes[done(lane, time) - 1];
    const readable = pass && (!moving() || (pass.end - pass.start) / model.get("speed") > SLOW);
    if (readable || !moving()) detail.show(lane, pass ?? null, { current: time < length() });
  }
  const moving = () => deck.playing;

  let saidAt = 0;
  function drawWords(time) {
    // While everything moves the sentence is read at a glance: a few times a second is enough.
    const clock = performance.now();
    if (moving() && clock - saidAt < 250) return;
    saidAt = clock;
    const parts = moment(run, time, lang).map(([key, values]) => t(key, values));
    // The page compares the texts itself; a file could say anything.
    const apart = number(run.header, "settings", "temperature") === 0 ? parting(run) : -1;
    if (apart >= 0 && run.end?.agreement.kind !== "differs") parts.push(t("say.parted", { position: num(apart + 1, lang, 6) }));
    for (const name of LANES) lanes[name].part(apart);
    f.say(parts.join(lang === "zh" ? "" : " "));
    drawResult(time);
  }

  /** The address of the first of these places in the article, from here or from an embedded figure. */
  const elsewhere = (...ids) => `${document.querySelector("[data-section]") ? "" : model.get("pageUrl") ?? ""}#${ids.find((id) => document.getElementById(id)) ?? ids.at(-1)}`;

  let told = null, tableKey = "";
  /** At the end of a run the bet is settled, and screen readers hear how it went. */
  function drawResult(time) {
    const over = run.end && time >= length() - 1e-9;
    const measured = run.end ? number(run.end.stats, "speedup", "measured") : null;
    if (over && measured !== null && told !== run) {
      const tokens = number(run.end.stats, "tokens_per_pass") ?? 0, alpha = number(run.end.stats, "acceptance", "alpha");
      f.reveal(bet(measured), { speedup: times(measured, lang), cost: num(tokens / measured, lang, 3), tokens: num(tokens, lang, 3), alpha: alpha === null ? "–" : fixed(alpha, 2, lang) });
      f.announce(moment(run, time, lang).map(([key, values]) => t(key, values)).join(" "));
      told = run;
      // Figures that calculate with α, c and v can take them from here.
      const [c, v, m] = ["c", "v", "m"].map((name) => number(run.end.stats, name)), formula = number(run.end.stats, "speedup", "formula");
      if (![alpha, c, v, m, formula].includes(null)) model.set("measured", { alpha, c, v, m, measured, formula });
    }
    if (told !== run) f.reveal(null);
    const key = `${run.events.length} ${run.header.created}`;
    if (key !== tableKey) { tableKey = key; f.table(statistics(run, t, lang), t("table.caption")); }
    const sampled = over && run.end.agreement.kind === "sampled";
    if (sampled !== proof.hasChildNodes()) proof.replaceChildren(...(sampled ? [h("a", { href: elsewhere("figure-lossless", "why-nothing-changes") }, t("say.proof"))] : []));
  }

  // --- what makes it move --------------------------------------------------------------------------------

  const redraw = frameThrottle(draw);
  on.add(redraw.cancel);
  on.resize(f.stage, (w) => { width = w; redraw.request(); });
  on.follow(model, "*", redraw.request);
  on.follow(model, "focus", () => {
    const focus = model.get("focus");
    const pass = focus && store.run?.lanes[focus[0]]?.passes[focus[1]];
    if (pass?.kind === "verify" && pass.tokens[0]?.origin === "rejected") f.solve();
  });
  on.add(store.subscribe(() => {
    if (store.kind === "live" && model.get("follow")) atFrontier();
    panel.draw();
    redraw.request();
  }));
  // A view rendered again finds its run in the store; only another choice replaces it.
  let chosen = store.kind === null ? null : model.get("recording");
  on.follow(model, "recording", () => {
    if (model.get("recording") !== chosen) store.showRecording((chosen = model.get("recording")));
  });
  player.onState(() => {
    store.playing = player.playing;
    if (!player.playing && running() && player.time >= length()) update(model, { follow: true });
    redraw.request();
  });

  // A file dropped anywhere on the figure is a run to show.
  const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  on.listen(f.root, "dragover", (event) => { if (carries(event)) { event.preventDefault(); dropnote.hidden = false; } });
  on.listen(f.root, "dragleave", (event) => { if (!f.root.contains(event.relatedTarget)) dropnote.hidden = true; });
  on.listen(f.root, "drop", (event) => {
    dropnote.hidden = true;
    if (!carries(event)) return;
    event.preventDefault();
    store.showFile(event.dataTransfer.files[0]);
  });

  panel.draw();
  return f.end;
}

/** The next round number of seconds, with some room: the end of a live race's time axis. */
function roundUp(seconds) {
  const ahead = Math.max(seconds * 1.15, 0.1);
  const power = 10 ** Math.floor(Math.log10(ahead));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((x) => x * power).find((x) => x >= ahead);
}
