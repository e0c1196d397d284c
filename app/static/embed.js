// One figure alone. Tells the page around it how high it is.

import { modelOf, mount } from "#sd/mount.js";

const { figure, strings, base } = JSON.parse(document.getElementById("boot").textContent);
const spec = { ...figure, strings: { ...strings, ...figure.strings } };
const state = {};
for (const [key, value] of new URLSearchParams(location.search))
  if (key.startsWith(`${spec.id}.`)) state[key.slice(spec.id.length + 1)] = value;

const pageUrl = new URL(spec.pageUrl || "/", location.href).href;
const slot = document.getElementById("figure");
await mount(spec, modelOf(spec, { state, extras: { base, pageUrl } }), slot);
document.documentElement.dataset.ready = "true";

const tell = () => parent.postMessage({ type: "sd-height", figure: spec.id, height: Math.ceil(slot.getBoundingClientRect().height) }, "*");
if (parent !== window) new ResizeObserver(tell).observe(slot);
