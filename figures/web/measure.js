// What the server measures at a reader's request (app/measure.py): one store a page, which outlives its views. A
// request is repeated until it is answered; results are kept, those of sentences by sentence.

import { h } from "#sd/dom.js";

const REPEAT_MS = 700;
const PATIENCE = 6; // answers in a row that may fail to come
/** Codes that have words, `ui.measure_<code>`; the others come from loading the models. */
const WORDED = ["cannot_measure", "empty_sentence", "engine_failed", "lost", "no_server", "sentence_too_long", "sentence_too_short", "server_busy", "too_many_requests"];
const stores = new Map(); // address → store
const NOTHING = { state: "none" };
const NO_SERVER = { state: "refused", error: { code: "no_server", detail: {} } };

/** Where measurements are asked for, or null in a page without a server. */
function address(model) {
  const base = model.get("base");
  return typeof base === "string" && /^https?:$/.test(location.protocol) ? `${base}/measure` : null;
}

/** The store of the page that `model` belongs to. */
export function measuring(model) {
  const url = address(model);
  if (!stores.has(url)) stores.set(url, createStore(url));
  return stores.get(url);
}

const keyOf = ({ what, sentence }) => (what === "mask" ? `mask ${plain(sentence)}` : what);
const plain = (sentence) => sentence.replace(/\s+/g, " ").trim();

function createStore(url) {
  const states = new Map(); // key → what the server said last
  const found = new Map(); // key → the last state that was "done"
  const asking = new Set();
  const listeners = new Set();
  let looked = false;
  const put = (key, state) => { states.set(key, state); if (state.state === "done") found.set(key, state); for (const fn of [...listeners]) fn(); };

  async function fetchState(options) {
    const answer = await fetch(url, options);
    // A server of another age has no such route.
    if (answer.status === 404 || answer.status === 405) return { state: "refused", error: { code: "cannot_measure", detail: {} } };
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  return {
    subscribe(fn) { listeners.add(fn); return () => listeners.delete(fn); },
    /** The state of a request; its states are those of app/measure.py. */
    of: (request) => states.get(keyOf(request)) ?? (url ? NOTHING : NO_SERVER),
    /** The last answer to it, which stays while it is measured anew; null without one. */
    found: (request) => found.get(keyOf(request)) ?? null,
    /** Whether an answer is being waited for. */
    waits: (request) => asking.has(keyOf(request)),

    /** Learn, once, whether this server has a roofline already. */
    async look() {
      if (!url || looked) return;
      looked = true;
      try {
        const state = await fetchState();
        if (!asking.has("roofline")) put("roofline", state);
      } catch { /* no answer: nothing is known, and asking will say so */ }
    },

    /** Ask for a measurement and follow it to its end. */
    async ask(request) {
      const key = keyOf(request);
      if (!url || asking.has(key)) return;
      asking.add(key);
      put(key, { state: "running", share: 0 });
      let missing = 0, { again, ...rest } = request, body = request;
      for (;;) {
        let state = null;
        try {
          state = await fetchState({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
          missing = 0;
          body = rest; // "again" is said once
        } catch {
          missing += 1;
          if (missing >= PATIENCE) state = { state: "refused", error: { code: "lost", detail: {} } };
        }
        const ended = state && (state.state === "done" || state.state === "refused");
        if (ended) asking.delete(key);
        if (state) put(key, state);
        if (ended) return;
        await new Promise((done) => setTimeout(done, REPEAT_MS));
      }
    },
  };
}

/** How far a request is, in words that do not change with every step; "" for none and done. */
function progressText(t, { state, error }) {
  switch (state) {
    case "waiting": case "loading": case "running": return t(`ui.measure_${state}`);
    case "refused": return t(`ui.measure_${WORDED.includes(error.code) ? error.code : "other"}`, { code: error.code, ...error.detail });
    default: return "";
  }
}

/**
 * A button that asks, and words that say how far it is. `request()` is the request of the moment; `label(state)` and
 * `note(state)` give the words of the button and of what was found; `found(state)` is called when the reader's
 * request has been answered. Returns { element, draw }.
 */
export function measureButton(on, model, { t, request, label, note = () => "", found = () => {} }) {
  const store = measuring(model);
  const ask = async () => {
    const asked = request();
    if (store.waits(asked)) return;
    await store.ask(asked);
    found(store.of(asked));
  };
  const button = h("button", { type: "button", onclick: ask });
  const bar = h("progress", { max: 1, "aria-hidden": "true", style: { width: "8em" } });
  const words = h("span", { class: "sd-note", role: "status" });
  const element = h("div", { class: "sd-measure", style: { display: "flex", "flex-wrap": "wrap", gap: "6px 12px", "align-items": "center", "margin-block": "8px" } }, button, bar, words);
  function draw() {
    const asked = request(), state = store.of(asked), waits = store.waits(asked);
    const unable = state.able === false || ["no_server", "cannot_measure"].includes(state.error?.code);
    button.textContent = label(state);
    button.hidden = unable;
    // Not `disabled`: the focus stays where it is.
    button.setAttribute("aria-disabled", String(waits));
    bar.hidden = !waits;
    if (state.state === "running") bar.value = state.share; else bar.removeAttribute("value");
    const text = state.able === false ? t("ui.measure_cannot_measure") : progressText(t, state) || note(state);
    if (words.textContent !== text) words.textContent = text;
  }
  on.add(store.subscribe(draw));
  return { element, draw };
}
