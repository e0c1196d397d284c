// Teacher mode: the article as slides for a projector, and the class that follows them. Two parts: `magnify` puts
// the page into a frame of its own that is scaled as a whole, so that every figure keeps its own pixels;
// `present` runs inside. Without the teacher's key the slides work all the same, without a class.

import { button } from "#sd/controls.js";
import { h, s, scope } from "#sd/dom.js";
import { reset } from "#sd/model.js";
import { storeOf } from "../figures/race/store.js";
import { connect, createMirror, createWords, key, stateOf } from "./room.js";

/** The size that a slide is made for; a larger screen magnifies it. */
const SLIDE = [1280, 720];
const LARGEST = 4;
/** Milliseconds between two messages about the same figure, or about the place. */
const PACE = 150;

// --- the frame -----------------------------------------------------------------------------------------------

const inside = () => window.frameElement?.id === "sd-magnified";

function styled() {
  document.head.append(h("link", { rel: "stylesheet", href: new URL("present.css", import.meta.url).href }));
  document.documentElement.dataset.mode = "present";
}

/** On the page that was opened: show it again in a scaled frame, and return true. Inside that frame: false. */
export function magnify() {
  if (inside()) return false;
  styled();
  const frame = h("iframe", { id: "sd-magnified", title: document.title, src: location.href, allow: "fullscreen" });
  const fit = () => {
    const scale = Math.min(LARGEST, Math.max(1, Math.min(innerWidth / SLIDE[0], innerHeight / SLIDE[1])));
    Object.assign(frame.style, { width: `${innerWidth / scale}px`, height: `${innerHeight / scale}px`, transform: `scale(${scale})` });
    frame.dataset.scale = scale;
  };
  fit();
  addEventListener("resize", fit);
  document.body.replaceChildren(frame);
  frame.addEventListener("load", () => frame.contentWindow.focus());
  return true;
}

/** What is drawn into a canvas has to have the screen's own pixels. */
function sharpen() {
  const pixels = () => (parent.devicePixelRatio || 1) * Number(window.frameElement.dataset.scale);
  Object.defineProperty(window, "devicePixelRatio", { configurable: true, get: pixels });
}

// --- slides ----------------------------------------------------------------------------------------------------

/**
 * The article cut into slides: a heading with the text below it, a figure, the text after a figure.
 * Each is { id, kind, title, nodes }.
 */
function cut(word) {
  const stops = [{ id: "top", kind: "text", title: word("teacher.begin"), nodes: [document.querySelector(".masthead"), document.querySelector('[data-part="lede"]')] }];
  for (const section of document.querySelectorAll("section[data-section]:not(.appendix)")) {
    const head = section.querySelector("h2"), title = head.textContent;
    let last = { id: section.id, kind: "text", title, nodes: [head] };
    stops.push(last);
    for (const node of section.querySelector('[data-part="body"]').children) {
      const figure = node.dataset.figure;
      if (figure) stops.push((last = { id: node.id, kind: "figure", figure, title: [...(node.querySelector(".sd-title")?.childNodes ?? [])].map((x) => x.textContent).join(" · "), nodes: [node] }));
      else if (node.matches("h3[id]")) stops.push((last = { id: node.id, kind: "text", title: node.textContent, nodes: [node] }));
      else if (last.kind === "figure") stops.push((last = { id: `after-${last.figure}`, kind: "text", title: word("teacher.more_text", { title }), nodes: [node] }));
      else last.nodes.push(node);
    }
  }
  return stops;
}

/** The slides on the screen. `moved(place)` is told where the teacher has gone. */
function createDeck(word, moved) {
  let stops = [], at = 0;
  const deck = {
    get stops() { return stops; },
    get at() { return at; },
    get stop() { return stops[at]; },
    /** Cut the article anew, for its words have changed. */
    cut() { stops = cut(word); deck.go(Math.min(at, stops.length - 1), { told: true }); },
    /** Show a slide; `end`: its last screen. `told`: everybody knows. */
    go(index, { end = false, told = false } = {}) {
      at = Math.max(0, Math.min(stops.length - 1, index));
      const on = new Set(stops[at].nodes);
      for (const { nodes } of stops) for (const node of nodes) on.has(node) ? node.removeAttribute("data-off") : node.setAttribute("data-off", "");
      document.documentElement.dataset.slide = stops[at].kind;
      scrollTo({ top: end ? document.documentElement.scrollHeight : 0, behavior: "instant" });
      if (!told) deck.tell();
    },
    /** To a place that another teacher's page has chosen. */
    follow({ stop, share }) {
      const index = stops.findIndex((x) => x.id === stop);
      if (index < 0) return;
      if (index !== at) deck.go(index, { told: true });
      scrollTo({ top: share * document.documentElement.scrollHeight, behavior: "instant" });
    },
    /** A long text goes on by a screen; else the next slide. */
    step(direction) {
      const below = document.documentElement.scrollHeight - innerHeight - scrollY;
      if (direction > 0 && below > 8) scrollBy({ top: Math.min(below, innerHeight * 0.8), behavior: "instant" });
      else if (direction < 0 && scrollY > 8) scrollBy({ top: -innerHeight * 0.8, behavior: "instant" });
      else if (at + direction >= 0 && at + direction < stops.length) deck.go(at + direction, { end: direction < 0 });
    },
    place: () => ({ stop: stops[at].id, share: Math.min(1, scrollY / Math.max(1, document.documentElement.scrollHeight)) }),
    tell() { moved(deck.place()); },
  };
  return deck;
}

/** Run `fn` at once and then no more often than the pace; the last call is never lost. */
function paced(fn) {
  let timer = 0, waiting = false;
  return () => {
    if (timer) { waiting = true; return; }
    fn();
    timer = setTimeout(function due() {
      timer = 0;
      if (waiting) { waiting = false; fn(); timer = setTimeout(due, PACE); }
    }, PACE);
  };
}

// --- the page inside ---------------------------------------------------------------------------------------------

export async function present(page) {
  styled();
  sharpen();
  const on = scope();
  const word = createWords(page);
  await word.load();
  const root = document.documentElement;

  let line = null, people = null, addresses = [], chosen = 0, trouble = "";
  const lead = key() !== null;
  const deck = createDeck(word, paced(() => line?.send({ do: "move", place: deck.place() })));
  const mirror = createMirror(page, { lead: true, changed });

  // --- the bar ---------------------------------------------------------------------------------------------------

  const menu = h("select", { class: "pr-menu" });
  const bets = h("div", { class: "pr-bets" });
  const crowd = h("span", { class: "pr-people", role: "status" });
  const warn = h("p", { class: "pr-warn", role: "alert" });
  const more = h("div", { class: "pr-more", hidden: true });
  const bar = h("div", { class: "pr-bar", role: "toolbar" });
  const wall = h("div", { class: "pr-join", role: "dialog", hidden: true });
  const blank = h("div", { class: "pr-blank", hidden: true });
  const tools = document.querySelector(".bar-tools");
  document.body.append(bar, wall, more, blank);

  const tool = (name, fn, extra = {}) => {
    const made = button(on, word(`teacher.${name}`), fn, extra);
    made.classList.add("pr-tool");
    return made;
  };
  const turn = (name, mark, direction) => {
    const made = tool(name, () => { deck.step(direction); draw(); }, { "aria-label": word(`teacher.${name}`), title: word(`teacher.${name}`) });
    made.textContent = mark;
    return made;
  };
  const fullscreen = () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.()?.catch(() => {}));
  const toggleStage = () => { root.toggleAttribute("data-picture"); };
  const toggleJoin = (show = wall.hidden) => { if (lead && addresses.length) { wall.hidden = !show; if (show) wall.querySelector("button")?.focus(); } };
  const toggleBlank = () => { blank.hidden = !blank.hidden; };
  const toggleMore = () => { more.hidden = !more.hidden; };
  const sheet = () => {
    const url = new URL(`${page.boot.base}/worksheet`, location.href);
    for (const [name, value] of new URLSearchParams(location.search)) if (name === "lang" || name.includes(".")) url.searchParams.append(name, value);
    url.searchParams.set("lang", page.lang());
    window.open(url, "_blank", "noopener");
  };
  function leave() {
    line?.stop();
    try { sessionStorage.removeItem("sd:teacher"); } catch { /* nothing was kept */ }
    const url = new URL(location.href);
    url.searchParams.delete("mode");
    parent.location.assign(url);
  }

  function dress() {
    bar.setAttribute("aria-label", word("teacher.label"));
    menu.setAttribute("aria-label", word("teacher.goto"));
    bar.replaceChildren(
      turn("back", "◀", -1), turn("next", "▶", 1), menu, bets, h("span", { class: "pr-space" }), crowd,
      lead ? tool("join", () => toggleJoin()) : "", tool("stage", toggleStage), tool("fullscreen", fullscreen), tool("more", toggleMore));
    const hides = h("input", { type: "checkbox", checked: Boolean(mirror.hides) });
    hides.addEventListener("change", () => { mirror.hides = hides.checked; mirror.betAll(); });
    more.replaceChildren(...[
      tools, h("p", {}, word(lead ? "teacher.keys" : "teacher.slides")), lead && h("p", {}, word("teacher.race")),
      lead && h("label", {}, hides, " ", word("teacher.hide")),
      h("div", { class: "pr-row" }, tool("sheet", sheet), tool("blank", toggleBlank),
        lead && tool("anew", () => { if (confirm(word("teacher.anew_sure"))) line.send({ do: "anew" }); }), tool("leave", leave)),
    ].filter(Boolean));
    hang();
    draw();
  }

  /** The address and its code, for the wall. */
  function hang() {
    const offer = addresses[Math.min(chosen, addresses.length - 1)];
    if (!offer) { wall.hidden = true; return; }
    const size = offer.code.length;
    const path = offer.code.flatMap((row, y) => [...row].map((cell, x) => (cell === "1" ? `M${x} ${y}h1v1h-1z` : ""))).join("");
    const [scheme, rest] = offer.url.split("://");
    wall.setAttribute("aria-label", word("join.title"));
    wall.replaceChildren(
      h("div", { class: "pr-card" },
        s("svg", { viewBox: `0 0 ${size} ${size}`, class: "pr-code", role: "img", "aria-label": word("join.code", { url: offer.url }) }, s("path", { d: path })),
        h("div", { class: "pr-how" }, h("h2", {}, word("join.title")), h("p", {}, word("join.how")),
          h("p", { class: "pr-address" }, scheme === "http" ? null : h("span", { class: "pr-scheme" }, `${scheme}://`), rest),
          offer.only_here ? h("p", { class: "pr-only", role: "alert" }, word("join.only_here")) : h("p", {}, word("join.network")),
          h("p", { class: "pr-quiet" }, word("join.nothing")),
          h("div", { class: "pr-row" }, button(on, page.boot.strings["ui.close"], () => toggleJoin(false)),
            addresses.length > 1 ? button(on, word("join.other"), () => { chosen = (chosen + 1) % addresses.length; hang(); }) : null))));
  }

  let listed = null;
  function drawMenu() {
    if (listed !== deck.stops) {
      menu.replaceChildren(...deck.stops.map((stop, i) => h("option", { value: i }, `${i + 1}/${deck.stops.length} · ${stop.title}`)));
      listed = deck.stops;
    }
    menu.value = deck.at;
  }

  /** What comes next for the guess of the figure on the screen. */
  function drawBets() {
    const { figure } = deck.stop;
    const has = figure && lead && document.querySelector(`#figure-${figure} .sd-bet`);
    if (!has) { bets.replaceChildren(); return; }
    const { phase = "open", counts = [] } = mirror.bets[figure] ?? {};
    const next = { open: ["lock", "locked"], locked: ["reveal", "revealed"], revealed: ["again", "open"] }[phase];
    const focused = bets.contains(document.activeElement);
    bets.replaceChildren(h("span", {}, word("teacher.guesses", { count: (counts ?? []).reduce((a, b) => a + b, 0) })),
      tool(next[0], () => line.send({ do: "bet", figure, phase: next[1] }), { primary: true }));
    if (focused) bets.querySelector("button").focus();
  }

  function draw() {
    drawMenu();
    drawBets();
    crowd.textContent = !people ? "" : people.pages ? word("teacher.people", people) : word("teacher.people_none");
    warn.textContent = trouble ? word(`teacher.${trouble}`) : "";
    warn.hidden = !trouble;
  }

  // --- the class ---------------------------------------------------------------------------------------------------

  function changed(message) {
    switch (message.type) {
      case "welcome": if (first) mirror.setAll(); mirror.betAll(); break;
      case "session": mirror.betAll(); break;
      case "figure": mirror.set(message.figure); break;
      case "bet": mirror.bet(message.figure); break;
      case "place": deck.follow(message.place); break;
    }
    draw();
  }

  // A page that is opened takes over what the room shows; one whose line broke meanwhile knows better.
  let first = true, broken = false, hung = false;
  const tellers = new Map();
  function hear(message) {
    switch (message.type) {
      case "people": people = message; break;
      case "join": addresses = message.addresses; hang(); if (!hung && deck.at === 0) toggleJoin(true); hung = true; break;
      case "welcome":
        trouble = "";
        // A welcome out of the blue: another class begins, with figures as they are at first.
        if (!first && !broken) { for (const { model } of page.figures.values()) reset(model); deck.go(0); }
        mirror.hear(message);
        if (message.place && first) deck.follow(message.place); else deck.tell();
        for (const [id, tell] of tellers) if (!first || !(id in message.figures)) tell();
        first = broken = false;
        // A race that was asked for while the line broke will not come.
        if (!message.race && race.live.shared) race.hear({ type: "refused", code: "connection_lost", detail: {} });
        return;
      case "refused":
        if (message.code === "wrong_key" || message.code === "room_full") {
          trouble = message.code === "wrong_key" ? "wrong_key" : "full";
          if (trouble === "wrong_key") line.stop();
        } else race.hear(message);
        break;
      default: mirror.hear(message); return;
    }
    draw();
  }
  const race = storeOf(page.figures.get("race").model);

  document.body.append(warn);
  deck.cut();
  if (lead) {
    for (const [id, entry] of page.figures) {
      const tell = paced(() => line?.send({ do: "set", figure: id, state: stateOf(entry) }));
      tellers.set(id, tell);
      entry.model.on("change", () => { if (!mirror.busy) tell(); });
    }
    page.figures.get("race").model.set("raceForAll", (message) => line.send(message));
    line = connect({
      base: page.boot.base,
      greeting: () => ({ do: "hello", key: key(), at: parent.location.origin + parent.location.pathname }),
      hear,
      lost() { broken = true; if (!trouble) trouble = "lost"; draw(); },
    });
  }
  dress();

  // --- hands -------------------------------------------------------------------------------------------------------

  menu.addEventListener("change", () => { deck.go(Number(menu.value)); menu.blur(); draw(); });
  addEventListener("scroll", () => deck.tell(), { passive: true });
  const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
  const letters = { f: fullscreen, j: toggleJoin, s: toggleStage, b: toggleBlank, ".": toggleBlank };
  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = event.target instanceof Element ? event.target : document.body;
    const writes = target.closest('textarea, input:not([type="range"], [type="checkbox"], [type="radio"]), [contenteditable]');
    // The page keys are a clicker's: they turn the page even while a slider has the focus.
    const uses = target.closest('input, select, textarea, summary, [tabindex]:not([tabindex="-1"])');
    const act = (fn) => { event.preventDefault(); fn(); draw(); };
    if (event.key === "Escape" && (!wall.hidden || !more.hidden || !blank.hidden)) act(() => { wall.hidden = more.hidden = blank.hidden = true; });
    else if (event.key.startsWith("Page") ? !writes : event.key in steps && !uses) act(() => { wall.hidden = true; deck.step(steps[event.key]); });
    else if (event.key === "Home" && !uses) act(() => deck.go(0));
    else if (event.key === "End" && !uses) act(() => deck.go(deck.stops.length - 1));
    else if (event.key.toLowerCase() in letters && !writes && !event.target.closest?.("select")) act(() => letters[event.key.toLowerCase()]());
  }, { capture: true });
  blank.addEventListener("click", toggleBlank);
  page.onLanguage(async (drawn) => {
    deck.cut();
    await word.load();
    deck.cut();
    dress();
    await drawn; // a slide's title and its guess come with its figure
    deck.cut();
    draw();
  });
  draw();
}
