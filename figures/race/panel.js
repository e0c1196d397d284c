// The choice of a run: a recording, a file, or a live race with settings of one's own; and what the live race
// is waiting for, or why it could not be.

import { button, numberField, segments, select, slider, textField, toggle } from "#sd/controls.js";
import { h, uid } from "#sd/dom.js";
import { fixed, num, percent, si } from "#sd/format.js";
import { update } from "#sd/model.js";
import { chromeTrace, fileOf } from "./model.js";

const LEVELS = ["easy", "medium", "hard"];
const SETTINGS = ["chat", "temperature", "top_k", "top_p", "seed", "length", "drafter"];

/** What a live race is asked for. */
export function request(model) {
  const prompts = model.get("data").prompts;
  const settings = Object.fromEntries(SETTINGS.map((name) => [name, model.get(name)]));
  const prompt = model.get("prompt") || prompts[0]?.text || "";
  return [model.get("pair"), { ...settings, prompt, m: model.get("adaptive") ? "adaptive" : model.get("m") }];
}

export function createPanel({ f, model, store, onStart }) {
  const { on, t, lang } = f;
  const { live } = store;

  // --- recordings and files --------------------------------------------------------------------------

  const { prompts, recordings } = model.get("data");
  const picker = h("select", { id: uid("recording") });
  const fillPicker = () => {
    const entries = recordings.map((stem) => [stem, t(`recording.${stem}`)]);
    if (live.run) entries.unshift(["", t("recording.live")]);
    if (store.kind === "file") entries.unshift([" ", t("recording.file", { name: store.name })]);
    picker.replaceChildren(...entries.map(([value, text]) => h("option", { value }, text)));
    picker.value = store.kind === "live" ? "" : store.kind === "file" ? " " : store.name || model.get("recording");
  };
  on.listen(picker, "change", () => {
    if (picker.value === "") store.showLive();
    else if (picker.value.trim()) {
      // The same recording again, after a file or a live race: the model would see no change.
      if (model.get("recording") === picker.value) store.showRecording(picker.value);
      else update(model, { recording: picker.value });
    }
  });
  const chooser = h("input", { type: "file", accept: ".json,application/json", class: "sd-visually-hidden", tabindex: -1, "aria-hidden": "true" });
  on.listen(chooser, "change", async () => { if (chooser.files[0]) await store.showFile(chooser.files[0]); chooser.value = ""; });
  const openFile = button(on, t("control.open"), () => chooser.click(), { quiet: true });
  const save = button(on, t("control.save"), () => download(`race-${stamp()}.json`, fileOf(store.run)), { quiet: true });
  const chrome = button(on, t("control.chrome"), () => download(`race-${stamp()}.chrome.json`, JSON.stringify(chromeTrace(store.run))), { quiet: true, title: t("note.export") });
  const stamp = () => (store.run.header.created || "").replace(/[^0-9TZ]/g, "").slice(0, 16);
  const recorded = h("div", { class: "rc-panel" },
    h("div", { class: "sd-control" }, h("label", { for: picker.id }, t("recording.label")), picker),
    h("div", { class: "rc-files" }, openFile, save, chrome, chooser));

  // --- a race of one's own ---------------------------------------------------------------------------

  const ideas = h("select", { id: uid("idea") });
  const speaks = (language) => (live.pairs?.find((x) => x.name === model.get("pair"))?.languages ?? ["en"]).includes(language);
  const fillIdeas = () => {
    const group = (label, list) => (list.length ? h("optgroup", { label }, list.map((x) => h("option", { value: x.text }, x.text.length > 70 ? `${x.text.slice(0, 68)}…` : x.text))) : null);
    const english = prompts.filter((x) => x.lang === "en");
    ideas.replaceChildren(h("option", { value: "" }, t("control.idea_own")),
      ...LEVELS.map((level) => group(t(`control.level_${level}`), english.filter((x) => x.level === level))).filter(Boolean),
      ...[speaks("zh") && group(t("control.level_chinese"), prompts.filter((x) => x.lang === "zh"))].filter(Boolean));
    const now = model.get("prompt") || prompts[0]?.text;
    ideas.value = prompts.some((x) => x.text === now) ? now : "";
  };
  on.listen(ideas, "change", () => { if (ideas.value) update(model, { prompt: ideas.value }); });

  const prompt = textField(on, model, "prompt", { label: t("control.prompt"), rows: 2, placeholder: prompts[0]?.text ?? "" });
  const m = slider(on, model, "m", { label: t("control.m") });
  const adapting = toggle(on, model, "adaptive", { label: t("control.adaptive") });
  const pairs = h("div", { class: "rc-slot" }), drafters = h("div", { class: "rc-slot" });
  const english = h("p", { class: "sd-note" }), where = h("p", { class: "sd-note" }, t("note.device"));
  const start = button(on, t("control.start"), onStart, { primary: true });
  const cancel = button(on, t("control.cancel"), () => store.cancel());
  const own = h("div", { class: "rc-panel" },
    h("div", { class: "sd-control sd-wide" }, h("label", { for: ideas.id }, t("control.idea")), ideas),
    prompt,
    h("div", { class: "rc-settings" }, m, adapting,
      slider(on, model, "temperature", { label: t("control.temperature"), format: (x) => (x === 0 ? t("control.greedy") : fixed(x, 1, lang)) })),
    h("details", { class: "rc-more" }, h("summary", {}, t("control.more")),
      h("div", { class: "rc-settings" }, drafters, pairs,
        slider(on, model, "length", { label: t("control.length"), format: (x) => num(x, lang, 4) }),
        slider(on, model, "top_p", { label: t("control.top_p"), format: (x) => fixed(x, 2, lang) }),
        numberField(on, model, "top_k", { label: t("control.top_k") }),
        numberField(on, model, "seed", { label: t("control.seed") }),
        toggle(on, model, "chat", { label: t("control.chat") }))),
    h("div", { class: "rc-go" }, start, cancel),
    english, where);
  const absent = h("p", { class: "sd-note" }, t("note.noserver"));

  /** The pairs on offer are known once the server has answered, and with them who can guess. */
  let offered = null;
  function fillPairs() {
    if (live.pairs === offered) return;
    offered = live.pairs;
    if (!offered.some((x) => x.name === model.get("pair"))) update(model, { pair: offered[0].name });
    pairs.replaceChildren(select(on, model, "pair", { label: t("control.pair"), options: offered.map((x) => [x.name, x.memory ? `${x.title} (${si(x.memory, "B", lang, 2)})` : x.title]) }));
    const { length } = model.get("schema");
    if (live.limits) length.max = Math.min(length.max, live.limits.length);
    fillDrafters();
  }
  function fillDrafters() {
    const pair = live.pairs?.find((x) => x.name === model.get("pair"));
    const choices = pair?.drafters ?? ["both", "model", "lookup"];
    // Where servers race, who guesses is set there.
    m.hidden = adapting.hidden = choices.length === 0;
    where.textContent = t(choices.length ? "note.device" : "note.servers");
    drafters.replaceChildren(choices.length
      ? segments(on, model, "drafter", { label: t("control.drafter"), options: choices.map((x) => [x, t(`control.drafter_${x}`)]) })
      : h("p", { class: "sd-note" }, t("control.drafter_server")));
    if (choices.length && !choices.includes(model.get("drafter"))) update(model, { drafter: choices[0] });
    english.textContent = pair && !pair.languages.includes("zh") ? t("note.english") : "";
  }
  fillDrafters();
  if (live.pairs) fillPairs();
  on.follow(model, ["pair"], () => { if (live.pairs) fillDrafters(); });
  on.follow(model, ["prompt", "pair"], fillIdeas);
  on.follow(model, "adaptive", () => { m.querySelector("input").disabled = model.get("adaptive"); });

  // --- which of the two, and what it waits for ---------------------------------------------------------

  const status = h("p", { class: "rc-status", role: "status" });
  const bar = h("progress", { max: 1, hidden: true, "aria-label": t("status.stage_load") });
  const error = h("p", { class: "sd-warn rc-error", role: "alert" });
  const panels = h("div", { class: "rc-panels" }, recorded, own, absent);
  const element = h("div", { class: "rc-choice" },
    segments(on, model, "mode", { label: t("mode.label"), options: ["recorded", "live"].map((x) => [x, t(`mode.${x}`)]) }), panels,
    h("div", { class: "rc-statusrow" }, status, bar), error);
  on.follow(model, "mode", () => {
    const liveMode = model.get("mode") === "live";
    panels.dataset.mode = model.get("mode");
    recorded.hidden = liveMode;
    own.hidden = !liveMode || !live.url;
    absent.hidden = !liveMode || Boolean(live.url);
    if (liveMode) store.connect();
    draw();
  });

  function waiting() {
    const { connection, phase, news, place } = live;
    if (phase === "idle") {
      if (news?.type === "loading") return loading(news);
      if (connection === "opening") return [t("status.connecting")];
      if (live.joined) return [t("status.joined")];
      if (connection === "open") return [t(news?.type === "ready" ? "status.ready" : "status.idle")];
      return [""];
    }
    if (connection === "lost") return [t("status.reconnecting")];
    if (connection === "opening") return [t("status.connecting")];
    if (phase === "running") return [live.joined ? `${t("status.running")} ${t("status.joined")}` : t("status.running")];
    if (place > 0) return [t("status.place", { n: num(place, lang, 6) })];
    if (news?.type === "loading") return loading(news);
    return [t(live.pairs ? "status.next" : "status.engine")];
  }
  function loading({ stage, done, total }) {
    const share = total > 0 ? done / total : 0;
    const bytes = ["download", "check"].includes(stage);
    const words = bytes ? `${si(done, "B", lang)} / ${si(total, "B", lang)}` : percent(share, lang);
    return [t("status.loading", { stage: t(`status.stage_${stage}`), share: words }), share];
  }

  function explain({ code, detail }) {
    const message = String(detail?.message ?? code);
    const known = model.get("strings")[`error.${code}`] !== undefined;
    const counted = (x) => num(Number(x), lang, 9);
    switch (code) {
      case "prompt_too_long": {
        const inTokens = detail.tokens !== undefined;
        const unit = (x) => (lang === "zh" ? `${counted(x)} 个${inTokens ? " token" : "字符"}` : `${counted(x)} ${inTokens ? "tokens" : "characters"}`);
        return t("error.prompt_too_long", { count: unit(inTokens ? detail.tokens : detail.characters), limit: unit(detail.limit) });
      }
      case "weights_not_found":
        return t("error.weights_not_found", { tried: (detail.tried ?? []).map((x) => (typeof x === "string" ? x : Object.values(x).join(": "))).join("; ") || message });
      case "file_size": return t("error.file_size", { size: si(detail.size, "B", lang), limit: si(detail.limit, "B", lang) });
      default: return t(known ? `error.${code}` : "error.other", { ...detail, ...(detail?.lane && { lane: t(`lane.${detail.lane}`) }), message });
    }
  }

  function draw() {
    if (live.pairs) fillPairs();
    fillPicker();
    const busy = live.phase !== "idle";
    const mode = model.get("mode") === "live" || busy;
    const [text, share] = mode && live.url ? waiting() : [""];
    if (status.textContent !== text) status.textContent = text;
    bar.hidden = share === undefined;
    if (share !== undefined) bar.value = share;
    const failed = store.error ?? (mode && live.news?.type === "failed" ? live.news.error : null);
    const why = failed ? explain(failed) : "";
    if (error.textContent !== why) error.textContent = why;
    start.disabled = busy;
    start.textContent = live.run ? t("control.again") : t("control.start");
    cancel.hidden = !busy;
    const whole = Boolean(store.run?.end);
    save.hidden = chrome.hidden = !whole;
  }
  return { element, draw };
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
