// A Bokeh chart inside a figure: the library loads when the figure is near the screen, the chart takes
// its colours from the design tokens, and the view moves its sources and ranges itself. No CustomJS,
// so nothing needs `unsafe-eval`.

import { loadScript, readData } from "#sd/data.js";
import { token } from "#sd/dom.js";

/** Resolves when `element` is within a screen's height of being seen. */
export function near(element, on) {
  return new Promise((done) => {
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((e) => e.isIntersecting)) { observer.disconnect(); done(); }
    }, { rootMargin: "100% 0%" });
    observer.observe(element);
    on.add(() => observer.disconnect());
  });
}

/** Set every property that a model's tags name: "line_color=--sd-target". */
function recolour(bokehDocument, element) {
  for (const model of bokehDocument._all_models.values())
    for (const tag of model.tags ?? []) {
      const match = /^(\w+)=(--sd-[\w-]+)$/.exec(tag);
      if (match) model[match[1]] = token(element, match[2]);
    }
}

/** Where a script can be loaded from: its address, or one made for a text that the page holds. */
async function addressOf(library) {
  return typeof library === "string" ? library : URL.createObjectURL(new Blob([await readData(library)], { type: "text/javascript" }));
}

/** The figure's own controls move a chart: it is no stop on the way of the Tab key. */
function passOver(root) {
  for (const element of root.querySelectorAll("*")) {
    if (element.tabIndex === 0) element.tabIndex = -1;
    if (element.shadowRoot) passOver(element.shadowRoot);
  }
}

/**
 * Embed the chart that `spec` ({ item, library }: a json_item as `readData` takes it, and the address of
 * BokehJS where the page does not run it, or its text as `readData` takes it) describes. Models are found by name; colours follow the theme.
 * Returns { get(name), batch(fn) }; ends with the view's scope.
 */
export async function embedChart(on, { item, library }, element) {
  let ended = false;
  on.add(() => { ended = true; });
  const [json] = await Promise.all([readData(item), window.Bokeh ? null : addressOf(library).then(loadScript)]);
  if (ended) return null;
  window.Bokeh.logger?.set_level?.("warn");
  // Bokeh waits before it draws; by then another language may have taken the element out of the page.
  const views = await window.Bokeh.embed.embed_item(structuredClone(json), element).catch((reason) => { if (!ended) throw reason; });
  if (!views) return null;
  passOver(element);
  const bokehDocument = [...views][0].model.document;
  const follow = () => recolour(bokehDocument, element);
  follow();
  const watch = new MutationObserver(follow);
  watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", follow);
  // Paper does not wait for the next frame.
  const within = (view) => [view, ...(view.child_views ?? []).flatMap(within)];
  const paper = () => {
    follow();
    for (const view of [...views].flatMap(within)) if (view.request_repaint) { view.request_repaint(); view.paint(); }
  };
  addEventListener("beforeprint", paper);
  const destroy = () => {
    watch.disconnect();
    removeEventListener("beforeprint", paper);
    media.removeEventListener("change", follow);
    bokehDocument.clear();
    element.replaceChildren();
  };
  if (ended) { destroy(); return null; }
  on.add(destroy);
  return { get: (name) => bokehDocument.get_model_by_name(name) };
}
