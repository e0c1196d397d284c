// The page: mounts the figures, keeps their state in the URL, switches language and theme in place.

import { readData } from "#sd/data.js";
import { modelOf, mount, worded } from "#sd/mount.js";
import { publicState, stateIn } from "#sd/model.js";
import { createShared } from "#sd/shared.js";
import { restoreQuiz } from "./quiz.js";
import "./print.js";

const boot = JSON.parse(document.getElementById("boot").textContent);
const root = document.documentElement;
const figures = new Map(); // id → { spec, model, slot, end, shown }
const bundles = new Map(); // lang → what /content/<lang>.json gave
let lang = boot.lang;
const languageListeners = new Set();

// --- state in the URL and in the session ----------------------------------------------------------

const parameters = () => new URLSearchParams(location.search);

/** m, α, c, device and pair are one thing for all figures but those set apart (`?apart=branch,mask`). */
const shared = createShared({ apart: (parameters().get("apart") ?? "").split(",").filter((id) => id in boot.figures), onApart: () => writeUrl(), marks: recall("sd:followed"), onMarks: (marks) => remember("sd:followed", marks) });

let writing = 0;
/** The URL follows the figures, at most a few times a second (browsers throttle history calls). */
function writeUrl() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const next = new URLSearchParams();
    for (const [key, value] of parameters()) if (key !== "apart" && !figures.has(key.split(".")[0])) next.append(key, value);
    if (shared.apart().length) next.append("apart", shared.apart().join(","));
    for (const { model, spec } of figures.values())
      for (const [key, value] of Object.entries(publicState(model))) next.append(`${spec.id}.${key}`, String(value));
    const query = next.toString();
    history.replaceState(history.state, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
    for (const { model, spec } of figures.values()) {
      const kept = Object.fromEntries(Object.entries(spec.schema).filter(([, e]) => e.keep).map(([k]) => [k, model.get(k)]));
      remember(`sd:${spec.id}`, kept);
    }
  }, 250);
}

function remember(key, value) {
  try { sessionStorage.setItem(key, JSON.stringify(value)); } catch { /* private mode: the page works without */ }
}
function recall(key) {
  try { return JSON.parse(sessionStorage.getItem(key)) ?? {}; } catch { return {}; }
}

// --- figures --------------------------------------------------------------------------------------

async function mountAll() {
  for (const slot of document.querySelectorAll(".sd-slot[data-figure]")) {
    const id = slot.dataset.figure;
    const found = boot.figures[id];
    if (!found) continue;
    const spec = worded(found, boot.strings);
    const model = modelOf(spec, { state: { ...recall(`sd:${id}`), ...stateIn(parameters(), spec) }, onSave: () => { writeUrl(); shared.spread(id); }, extras: { base: boot.base } });
    model.on("change", writeUrl);
    const entry = { spec, model, slot, end: () => {}, shown: Promise.resolve() };
    figures.set(id, entry);
    shared.join(id, model);
  }
  shared.settle();
  await firstSign();
  for (const entry of figures.values()) {
    if (entry.slot.dataset.state !== "ready") await show(entry); // a change of language may have come first
    await new Promise((done) => setTimeout(done)); // a slow phone answers its reader between two figures
  }
}

/** Milliseconds that a page nobody has touched yet waits with its figures. */
const PATIENCE = 3000;

/**
 * Resolves when the reader does something, a figure is near the screen, or a while has gone by: on a slow phone
 * the words come first, and nothing holds up the first scroll.
 */
function firstSign() {
  if (mode || location.hash || scrollY > 0) return null;
  const signs = ["scroll", "wheel", "pointermove", "pointerdown", "touchstart", "keydown", "beforeprint"];
  return new Promise((done) => {
    const near = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) end(); }, { rootMargin: "0% 0% 25% 0%" });
    const timer = setTimeout(end, PATIENCE);
    function end() {
      clearTimeout(timer);
      near.disconnect();
      for (const sign of signs) removeEventListener(sign, end, true);
      done();
    }
    for (const sign of signs) addEventListener(sign, end, { capture: true, passive: true });
    for (const { slot } of figures.values()) near.observe(slot);
  });
}

/** Draw a figure in its slot, one drawing after the other: each takes away the one before it. */
function show(entry) {
  entry.shown = entry.shown.then(async () => {
    entry.end();
    entry.end = await mount(entry.spec, entry.model, entry.slot);
    entry.slot.dataset.state = "ready";
  });
  return entry.shown;
}

/** Draw every figure anew; each has kept its height until then. */
async function drawAll() {
  for (const entry of figures.values()) {
    await show(entry);
    entry.slot.style.minHeight = "";
  }
}

// --- language: words change, state and place stay --------------------------------------------------

/** The block nearest the top of the screen, found again after the words have changed. */
function place() {
  const blocks = [...document.querySelectorAll("main [data-part] > *, main h2")];
  const at = blocks.findIndex((b) => b.getBoundingClientRect().bottom > 60);
  if (at < 0) return () => {};
  const section = blocks[at].closest("[data-section]");
  const mates = section ? [...section.querySelectorAll("[data-part] > *, h2")] : [];
  const slot = blocks[at].closest(".sd-slot")?.dataset.figure;
  const share = mates.length ? mates.indexOf(blocks[at]) / mates.length : 0;
  const offset = blocks[at].getBoundingClientRect().top;
  return () => {
    const again = slot ? document.querySelector(`.sd-slot[data-figure="${slot}"]`)
      : section ? [...section.querySelectorAll("[data-part] > *, h2")].at(Math.round(share * mates.length)) ?? section
        : null;
    if (again) scrollBy({ top: again.getBoundingClientRect().top - offset, behavior: "instant" });
  };
}

let wanted = lang;
async function switchLanguage(next) {
  wanted = next;
  if (!bundles.has(next) && next !== lang) bundles.set(next, await readData(boot.words[next]));
  if (next === lang || next !== wanted) return; // the reader has changed their mind meanwhile
  const bundle = bundles.get(next);
  const restore = place();
  const heights = new Map([...figures.values()].map((entry) => [entry, entry.slot.offsetHeight]));
  lang = next;
  root.lang = bundle.tag;
  root.dataset.lang = next;
  document.title = bundle.title;
  document.querySelector('meta[name="description"]').content = bundle.description;
  for (const node of document.querySelectorAll("[data-string]")) node.textContent = bundle.strings[node.dataset.string];
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", bundle.strings[node.dataset.label]);
  for (const node of document.querySelectorAll("[data-switch]")) node.dataset.switch === next ? node.setAttribute("aria-current", "true") : node.removeAttribute("aria-current");

  const interfaceWords = Object.fromEntries(Object.entries(bundle.strings).filter(([k]) => k.startsWith("ui.")));
  document.querySelector('[data-part="lede"]').innerHTML = bundle.lede;
  for (const { id, title, html } of bundle.sections) {
    const section = document.querySelector(`[data-section="${id}"]`);
    section.querySelector("h2 .anchor").textContent = title;
    section.querySelector('[data-part="body"]').innerHTML = html;
    const link = document.querySelector(`.contents a[href="#${id}"]`);
    if (link) link.textContent = title;
  }
  restoreQuiz();
  for (const entry of figures.values()) {
    entry.end();
    entry.end = () => {};
    entry.spec = worded(bundle.figures[entry.spec.id], interfaceWords);
    for (const name of ["strings", "lang", "data"]) entry.model.set(name, entry.spec[name]);
    entry.slot = document.querySelector(`.sd-slot[data-figure="${entry.spec.id}"]`);
    // The figure's place keeps its height until the figure stands there again: nothing jumps meanwhile.
    entry.slot.style.minHeight = `${heights.get(entry)}px`;
  }
  const drawn = drawAll();
  for (const fn of languageListeners) fn(drawn);
  restore();
  await drawn;
  restore();
  history.replaceState(history.state, "", addressIn(next));
}

const switches = new Map([...document.querySelectorAll("[data-switch]")].map((link) => [link.dataset.switch, link]));
const homes = new Map([...switches].map(([each, link]) => [each, new URL(link.href)]));

/** This state in another language: a page of its own in a built copy, the parameter `lang` on the server. */
function addressIn(next) {
  const url = new URL(homes.get(next));
  for (const [key, value] of parameters()) if (key !== "lang") url.searchParams.append(key, value);
  url.hash = location.hash;
  return url;
}

for (const [next, link] of switches) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    // From a file the address cannot become another file's; and where the other language cannot be read, the
    // plain link still opens the page in it.
    if (location.protocol === "file:") location.assign(addressIn(next));
    else switchLanguage(next).catch(() => location.assign(addressIn(next)));
  });
}

// --- theme ----------------------------------------------------------------------------------------

const themeSelect = document.getElementById("theme");
function setTheme(theme, save) {
  if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
  themeSelect.value = theme;
  if (!save) return;
  try { localStorage.setItem("sd:theme", theme); } catch { /* the choice lives in the URL then */ }
  const url = parameters();
  theme === "auto" ? url.delete("theme") : url.set("theme", theme);
  history.replaceState(history.state, "", `${location.pathname}${url.size ? `?${url}` : ""}${location.hash}`);
}
themeSelect.addEventListener("change", () => setTheme(themeSelect.value, true));
themeSelect.value = root.dataset.theme ?? "auto"; // as theme.js has left it

// --- where the reader is --------------------------------------------------------------------------

let ticking = false;
function progress() {
  ticking = false;
  const height = root.scrollHeight - innerHeight;
  root.style.setProperty("--progress", height > 0 ? Math.min(1, scrollY / height) : 0);
  let current = null;
  for (const section of document.querySelectorAll("[data-section]")) if (section.getBoundingClientRect().top < innerHeight * 0.35) current = section.id;
  for (const link of document.querySelectorAll(".contents a")) link.getAttribute("href") === `#${current}` ? link.setAttribute("aria-current", "location") : link.removeAttribute("aria-current");
}
addEventListener("scroll", () => { if (!ticking) { ticking = true; requestAnimationFrame(progress); } }, { passive: true });
addEventListener("resize", progress);

// Below a wide window the contents lie over the text until one of them is chosen.
const contents = document.getElementById("contents");
contents.addEventListener("click", (event) => { if (event.target.closest("a") && contents.matches(":popover-open")) contents.hidePopover(); });

// Escape takes a definition or the source of a number away, however it was called up.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (document.activeElement.matches(".sd-term, .sd-num")) document.activeElement.blur();
  for (const word of document.querySelectorAll(":is(.sd-term, .sd-num):hover")) {
    word.dataset.dismissed = "";
    word.addEventListener("pointerleave", () => delete word.dataset.dismissed, { once: true });
  }
});

// A link to this state may name the other language, and a built copy has a page for each.
const asked = parameters().get("lang");
if (asked !== lang && homes.has(asked)) location.replace(addressIn(asked));

// A class that reads together, where there is a server: `?mode=present` for its teacher, `?class` for all others.
const mode = !boot.base ? null : parameters().get("mode") === "present" ? "present" : parameters().has("class") ? "follow" : null;
const classroom = mode && import(`${boot.base}/static/${mode === "present" ? "present" : "room"}.js`);
const page = { boot, figures, lang: () => lang, onLanguage: (fn) => languageListeners.add(fn) };

if (!(mode === "present" && (await classroom).magnify())) {
  restoreQuiz();
  await mountAll();
  progress();
  if (mode) await (await classroom)[mode](page);
  root.dataset.ready = "true";
}
// An anchor in the URL was measured before the figures had their height.
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView({ behavior: "instant" });
