// Starts a figure inside a notebook's output or a Panel app: the page is the text of a frame there. It takes its
// height and colours itself, so that it stands right without a script around it (a notebook turned into HTML), and
// waits to be joined by host.js on the outside:
//   out  { type: "sd-hello" }            there is a figure to join
//   in   { type: "sd-join", values } + a port, over which both send { values: { name: value } } from then on

import { alone } from "#sd/alone.js";

/** Milliseconds in which changes are gathered into one message. */
const PAUSE = 40;

/** Light or dark, as what the frame stands on. */
function themeAround(frame) {
  for (let node = frame; node; node = node.parentElement ?? node.getRootNode().host) {
    const [r, g, b, a = 1] = frame.ownerDocument.defaultView.getComputedStyle(node).backgroundColor.match(/[\d.]+/g).map(Number);
    if (a > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
  }
  return "light";
}

/** Be as high as the figure and, where nobody has chosen, as dark as the page. */
function settle(frame, slot, themed) {
  new ResizeObserver(() => { frame.style.height = `${Math.ceil(slot.getBoundingClientRect().height)}px`; }).observe(slot);
  if (themed) return;
  const follow = () => { document.documentElement.dataset.theme = themeAround(frame); };
  const watch = new MutationObserver(follow);
  for (const node of [parent.document.documentElement, parent.document.body]) watch.observe(node, { attributes: true });
  follow();
}

/** Keep the model and the program's values the same. */
function join(model) {
  const names = Object.entries(model.get("schema")).filter(([, entry]) => !entry.private).map(([name]) => name);
  let port = null;
  let known = {}; // name → what the program has
  let waiting = 0;
  const send = () => {
    waiting = 0;
    const values = Object.fromEntries(names.map((name) => [name, model.get(name)]).filter(([name, value]) => !Object.is(known[name], value)));
    Object.assign(known, values);
    if (Object.keys(values).length) port.postMessage({ values });
  };
  const take = (values) => {
    Object.assign(known, values);
    for (const name of names) if (name in values) model.set(name, values[name]);
    model.save_changes();
  };
  model.on("change", () => { if (port) waiting ||= setTimeout(send, PAUSE); });
  addEventListener("message", ({ source, data, ports }) => {
    if (source !== parent || data?.type !== "sd-join") return;
    port?.close();
    [port] = ports;
    port.onmessage = ({ data: { values } }) => take(values);
    take(data.values);
    document.documentElement.dataset.joined = "true";
  });
  parent.postMessage({ type: "sd-hello" }, "*");
}

const themed = Boolean(document.documentElement.dataset.theme);
const model = await alone();
if (window.frameElement) {
  settle(window.frameElement, document.getElementById("figure"), themed);
  join(model);
}
