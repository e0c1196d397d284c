// One figure alone in a page, as a file or in a frame of somebody's page. The address says its state, theme and
// controls; two messages pass between it and the page around it (docs/embedding.md):
//   out  { type: "sd-height", figure, height }   whenever its height changes
//   in   { type: "sd-theme", theme }             from the page around it alone; nothing else can be asked

import { modelOf, mount, worded } from "#sd/mount.js";

export const THEMES = ["auto", "light", "dark"];
export const CONTROLS = ["all", "few", "none"];
/** Parameters that others hang on addresses, to count their readers. */
const COUNTERS = /^utm_|^(fb|g|ms)clid$/;

/**
 * What an address asks for: "?mask.m=3&theme=dark" or "?m=3", in the query or after the #.
 * Returns { state, page, refused }: values for the model, { lang, theme, controls } where they are asked for and
 * allowed, and those that are not. Private state is never read.
 */
export function readAddress({ search, hash }, { id, schema }, languages) {
  const state = {}, page = {}, refused = [];
  const allowed = { lang: languages, theme: THEMES, controls: CONTROLS };
  for (const [key, value] of [...new URLSearchParams(search), ...new URLSearchParams(hash.includes("=") ? hash.slice(1) : "")]) {
    const name = key.startsWith(`${id}.`) ? key.slice(id.length + 1) : key;
    if (Object.hasOwn(allowed, key)) {
      if (allowed[key].includes(value)) page[key] = value;
      else refused.push({ name: key, value: { lang: languages[0], theme: "auto", controls: "all" }[key] });
    } else if (Object.hasOwn(schema, name)) {
      if (!schema[name].private) state[name] = value;
    } else if (!COUNTERS.test(name) && !/^\w+\./.test(name)) refused.push({ name: name.slice(0, 40), unknown: true });
  }
  return { state, page, refused };
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Tell the page around this one how high the figure is, and take its theme where the address leaves that open. */
function converse(id, slot, follow) {
  const tell = () => parent.postMessage({ type: "sd-height", figure: id, height: Math.ceil(slot.getBoundingClientRect().height) }, "*");
  new ResizeObserver(tell).observe(slot);
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.type !== "sd-theme") return;
    if (follow && THEMES.includes(data.theme)) setTheme(data.theme);
    tell();
  });
}

/** Make the figure that the page's `boot` element describes. Returns its model, or null on the way to another page. */
export async function alone() {
  const root = document.documentElement;
  const { figure, strings, base, lang, pages = {} } = JSON.parse(document.getElementById("boot").textContent);
  const spec = worded(figure, strings);
  const { state, page, refused } = readAddress(location, spec, [...new Set([lang, ...Object.keys(pages)])]);
  if (page.lang && page.lang !== lang) {
    location.replace(new URL(pages[page.lang].split("?")[0] + location.search + location.hash, location.href));
    return null;
  }
  if (page.theme) setTheme(page.theme);
  if (page.controls) root.dataset.controls = page.controls;
  const slot = document.getElementById("figure");
  const extras = { base, ...(spec.pageUrl && { pageUrl: new URL(spec.pageUrl, location.href).href }) };
  const model = modelOf(spec, { state, refused, extras });
  await mount(spec, model, slot);
  // The figure's title is that of the page here.
  for (const heading of slot.querySelectorAll("h3, h4")) heading.setAttribute("aria-level", String(Number(heading.localName[1]) - 2));
  root.dataset.ready = "true";
  if (parent !== window) converse(spec.id, slot, !root.dataset.theme);
  return model;
}
