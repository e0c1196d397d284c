// From a figure's description (made by `figures/figure.py`) to a live figure in an element.

import { createModel } from "#sd/model.js";
import { loadScript } from "#sd/data.js";
import { h } from "#sd/dom.js";

/** A figure's description with the words of the interface beside its own. */
export const worded = (spec, strings) => ({ ...spec, strings: { ...strings, ...spec.strings } });

/** Make the model of a figure. `state` wins over what the description says; `refused` is shown as a note. */
export function modelOf(spec, { state = {}, refused, onSave, extras = {} } = {}) {
  const { schema, strings, lang, data, id, number, betAnswer, ...rest } = spec;
  return createModel({ schema, state: { ...spec.state, ...state }, refused, onSave, extras: { ...rest, id, number, betAnswer, strings, lang, data, ...extras } });
}

/**
 * The view's module: one that a joined script (export/bundle.py) has brought, or brings now (`spec.script`), or
 * an ES module.
 */
async function viewOf({ id, script, view }) {
  if (!globalThis.sdViews?.[id] && script) await loadScript(script);
  return globalThis.sdViews?.[id] ?? import(view);
}

/** Render, and when that fails say so where the figure would stand. Returns a clean-up function. */
export async function mount(spec, model, el) {
  try {
    const { render } = await viewOf(spec);
    el.replaceChildren();
    return render({ model, el }) ?? (() => {});
  } catch (reason) {
    console.error(`figure ${spec.id}:`, reason);
    const template = model.get("strings")["ui.error_figure"] ?? "{reason}";
    el.replaceChildren(h("div", { class: "sd-error", role: "alert" }, template.replace("{reason}", String(reason?.message ?? reason))));
    return () => {};
  }
}
