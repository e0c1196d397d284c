// A class: the line to the room, what it says, and a page that follows the teacher's. The teacher's side is
// present.js. `page` is what article.js lends: { boot, figures, lang(), onLanguage(fn) }; fn gets a promise that
// the figures stand in the new language.

import { h } from "#sd/dom.js";
import { readData } from "#sd/data.js";
import { fillTemplate } from "#sd/format.js";
import { publicState } from "#sd/model.js";
import { storeOf } from "../figures/race/store.js";

const KEY = "sd:teacher", SEAT = "sd:seat";
const RETRY_MS = [300, 700, 1500, 3000, 5000, 8000];
/** Private state that a class shares all the same: where an animation stands. */
const TIME = "t";
/** Where a race comes from is each page's own choice. */
const OWN = new Set(["race.mode"]);

const keep = (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* private mode: until the next reload */ } };
const kept = (name) => { try { return sessionStorage.getItem(name); } catch { return null; } };

/** The teacher's key leaves the address at once: that is what gets copied, shown and shared. */
let secret = kept(KEY);
const given = /^#teacher=(.+)$/.exec(location.hash);
if (given) {
  secret = decodeURIComponent(given[1]);
  keep(KEY, secret);
  history.replaceState(history.state, "", location.pathname + location.search);
}
export const key = () => secret;

/** Words of a class in the page's language, which may change: `await words.load()`, then words("join.title"). */
export function createWords(page) {
  let strings = {};
  const word = (name, values) => fillTemplate(strings[name] ?? name, values);
  word.load = async () => { strings = await readData(`${page.boot.base}/class/${page.lang()}.json`); };
  return word;
}

/**
 * The line to the room. It comes back by itself, for as long as the page is open.
 * @param greeting  () => the first message
 * @param hear      called with each message
 * @param lost      called when the line breaks
 * Returns { send(message), stop() }.
 */
export function connect({ base, greeting, hear, lost }) {
  const url = new URL(`${base}/room`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  let socket = null, attempts = 0, timer = 0, stopped = false;
  function open() {
    clearTimeout(timer);
    const mine = socket = new WebSocket(url);
    mine.onopen = () => mine.send(JSON.stringify(greeting()));
    mine.onmessage = ({ data }) => { if (mine === socket) { attempts = 0; hear(JSON.parse(data)); } };
    mine.onclose = () => {
      if (mine !== socket) return;
      socket = null;
      if (stopped) return;
      lost();
      // Not all pages of a class at the same moment.
      timer = setTimeout(open, RETRY_MS[Math.min(attempts++, RETRY_MS.length - 1)] * (0.75 + Math.random() / 2));
    };
  }
  const again = () => { if (!stopped && !socket && document.visibilityState === "visible") open(); };
  document.addEventListener("visibilitychange", again);
  addEventListener("online", again);
  addEventListener("pageshow", again);
  open();
  return {
    send(message) { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); },
    stop() { stopped = true; socket?.close(); },
  };
}

/**
 * What the room has said, and how a page takes it over. `page` as above; `lead` on a teacher's page.
 * `changed()` is called whenever something is different.
 */
export function createMirror(page, { lead, changed }) {
  const mirror = {
    session: false, place: null, figures: {}, bets: {}, follows: true, busy: false,
    /** Something is being taken over: what changes now is not the reader's doing. */
    take(fn) { mirror.busy = true; try { fn(); } finally { mirror.busy = false; } },
    hear,
    /** Put a figure into the state that the room has. */
    set(id) {
      const entry = page.figures.get(id), state = mirror.figures[id];
      if (!entry || !state) return;
      const { schema } = entry.spec;
      mirror.take(() => {
        for (const [name, { default: usual, private: own }] of Object.entries(schema))
          if (!own && !OWN.has(`${id}.${name}`)) entry.model.set(name, name in state ? state[name] : usual);
        if (TIME in state && schema[TIME]?.private && !(id === "race" && storeOf(entry.model).kind !== "recorded")) entry.model.set(TIME, state[TIME]);
      });
    },
    setAll() { for (const id of Object.keys(mirror.figures)) mirror.set(id); },
    /** Tell every figure how its bet stands. */
    bet(id) {
      const entry = page.figures.get(id);
      if (!entry) return;
      const { phase = "open", counts = null, mine } = mirror.bets[id] ?? {};
      mirror.take(() => {
        if (mirror.session && !lead && mine !== undefined) entry.model.set("bet", mine);
        entry.model.set("together", mirror.session ? { phase, counts: mirror.hides && phase === "open" ? null : counts, lead } : null);
      });
    },
    betAll() { for (const id of page.figures.keys()) mirror.bet(id); },
    show,
  };

  const race = { name: null, have: 0, frames: [] };

  function hear(message) {
    switch (message.type) {
      case "welcome":
        Object.assign(mirror, { session: message.session, place: message.place, figures: message.figures, bets: message.bets });
        watch(message.race);
        break;
      case "session": mirror.session = message.session; break;
      case "place": mirror.place = message.place; break;
      case "figure": mirror.figures[message.figure] = message.state; break;
      case "bet": mirror.bets[message.figure] = message; break;
      case "race": watch(message.race); break;
      case "events": grow(message); return;
      case "queue": if (mirror.follows) store.hear(message); return;
    }
    changed(message);
  }

  const store = storeOf(page.figures.get("race").model);

  /** The class has a race, or none; after a broken line it may be the one we know. */
  function watch(name) {
    if (name === race.name) return;
    Object.assign(race, { name, have: 0, frames: [] });
    if (name && mirror.follows) store.watch(name);
  }

  /** A frame of the class's race. After a broken line they all come again; what we have, we have. */
  function grow(frame) {
    if (frame.race !== race.name) return;
    const next = frame.from + frame.events.length;
    if (next <= race.have) return;
    const message = { ...frame, events: frame.events.slice(Math.max(0, race.have - frame.from)) };
    race.have = next;
    race.frames.push(message);
    if (mirror.follows) store.hear(message);
  }

  /** Show the class's race from its beginning, for a page that follows again. */
  function show() {
    if (!race.name) return;
    store.watch(race.name);
    for (const frame of race.frames) store.hear(frame);
  }
  return mirror;
}

/** The state of a figure as the room takes it. */
export function stateOf(entry) {
  const { id, schema } = entry.spec, state = publicState(entry.model);
  for (const name of Object.keys(state)) if (OWN.has(`${id}.${name}`)) delete state[name];
  const t = schema[TIME]?.private ? entry.model.get(TIME) : null;
  if (Number.isFinite(t) && !(id === "race" && storeOf(entry.model).kind !== "recorded")) state[TIME] = t;
  return state;
}

// --- a student's page --------------------------------------------------------------------------------------

const BAR = 56;

/** Where a stop begins and ends on this page, in pixels from its top; null if it is not here. */
function region(stop) {
  const slot = /^after-(.+)$/.exec(stop);
  const at = slot ? document.getElementById(`figure-${slot[1]}`)?.nextElementSibling : document.getElementById(stop);
  if (!at) return null;
  const top = at.getBoundingClientRect().top + scrollY;
  const next = [...document.querySelectorAll("main .sd-slot[data-figure], main h2, main h3[id]")].map((x) => x.getBoundingClientRect().top + scrollY).find((y) => y > top + 8);
  return [top, (next ?? document.documentElement.scrollHeight) - top];
}

/** Follow the class. Resolves when the page has its bar. */
export async function follow(page) {
  const word = createWords(page);
  await word.load();
  let line = "waiting", seat = {};
  try { seat = JSON.parse(kept(SEAT)) ?? {}; } catch { /* a new seat */ }

  const text = h("span", { class: "class-text", role: "status" });
  const button = h("button", { type: "button", class: "class-button" });
  const bar = h("aside", { class: "class-bar" }, h("i", { class: "class-dot", "aria-hidden": "true" }), text, button);
  document.head.append(h("link", { rel: "stylesheet", href: new URL("present.css", import.meta.url).href }));
  document.body.append(bar);
  document.documentElement.dataset.class = "";

  const mirror = createMirror(page, { lead: false, changed });
  const { send } = connect({
    base: page.boot.base,
    greeting: () => ({ do: "hello", ...(seat.voter ? { voter: seat.voter } : {}) }),
    hear(message) {
      if (message.type === "refused") { line = message.code === "room_full" ? "full" : "lost"; draw(); return; }
      if (message.type === "welcome") arrive(message);
      mirror.hear(message);
    },
    lost() { if (line !== "full") line = "lost"; draw(); },
  });

  function arrive({ voter, class: name, session, bets }) {
    line = "open";
    // Another class, another guess.
    if (seat.class !== name) mirror.take(() => { for (const { model } of page.figures.values()) model.set("bet", -1); });
    // A guess that was made while the line was broken.
    else if (session) for (const [id, { model }] of page.figures) {
      const bet = bets[id] ??= { phase: "open" };
      if (bet.phase !== "open" || bet.mine >= 0 || model.get("bet") < 0) continue;
      bet.mine = model.get("bet");
      send({ do: "vote", figure: id, option: bet.mine });
    }
    seat = { voter, class: name };
    keep(SEAT, JSON.stringify(seat));
    if (!mirror.follows) send({ do: "follow", follows: false });
  }

  function changed(message) {
    if (message.type === "welcome" || message.type === "session") mirror.betAll();
    else if (message.type === "bet") mirror.bet(message.figure);
    if (mirror.follows) {
      if (message.type === "figure") mirror.set(message.figure);
      if (message.type === "welcome") mirror.setAll();
      if (message.type === "welcome" || message.type === "place") go();
    }
    draw();
  }

  function go() {
    const found = mirror.session && mirror.place && region(mirror.place.stop);
    if (!found) return;
    const [top, height] = found;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || document.visibilityState === "hidden";
    scrollTo({ top: top + mirror.place.share * height - BAR, behavior: still ? "instant" : "smooth" });
  }

  function draw() {
    const state = line !== "open" ? line : !mirror.session ? (mirror.place ? "gone" : "waiting") : mirror.follows ? "following" : "own";
    bar.dataset.state = state;
    bar.setAttribute("aria-label", word("student.label"));
    if (text.textContent !== word(`student.${state}`)) text.textContent = word(`student.${state}`);
    button.hidden = !["following", "own"].includes(state);
    button.textContent = word(mirror.follows ? "student.leave" : "student.join");
  }

  button.addEventListener("click", () => {
    mirror.follows = !mirror.follows;
    send({ do: "follow", follows: mirror.follows });
    if (mirror.follows) { mirror.setAll(); mirror.show(); go(); }
    draw();
  });
  for (const [id, { model }] of page.figures)
    model.on("change:bet", () => {
      const { phase = "open" } = mirror.bets[id] ?? {};
      if (!mirror.busy && mirror.session && phase === "open" && model.get("bet") >= 0) send({ do: "vote", figure: id, option: model.get("bet") });
    });
  page.onLanguage(async () => { await word.load(); draw(); if (mirror.follows) go(); });
  draw();
}
