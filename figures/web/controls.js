// Native inputs, labelled, tied to one value of a model both ways. Every builder takes the view's
// scope (for clean-up) and returns an element to append.

import { h, uid } from "#sd/dom.js";

/**
 * A slider. `values` (an array) makes it move over listed values, evenly spaced: that is how a
 * logarithmic range stays usable by keyboard.
 */
export function slider(on, model, name, { label, format = String, values = null, wide = true, step }) {
  const entry = model.get("schema")[name];
  const id = uid("range");
  const nearest = (x) => values.reduce((best, v, i) => (Math.abs(Math.log((v || 0.5) / (x || 0.5))) < Math.abs(Math.log((values[best] || 0.5) / (x || 0.5))) ? i : best), 0);
  const input = h("input", {
    type: "range", id,
    min: values ? 0 : entry.min, max: values ? values.length - 1 : entry.max,
    step: values ? 1 : (step ?? entry.step ?? (entry.type === "integer" ? 1 : "any")),
  });
  const output = h("output", { for: id });
  on.listen(input, "input", () => model.set(name, values ? values[Number(input.value)] : Number(input.value)));
  on.listen(input, "change", () => model.save_changes());
  on.follow(model, name, () => {
    const value = model.get(name);
    input.value = values ? nearest(value) : value;
    output.textContent = format(value);
    input.setAttribute("aria-valuetext", format(value));
  });
  return h("div", { class: `sd-control${wide ? " sd-wide" : ""}`, dataset: { control: name } }, h("label", { for: id }, label, output), input);
}

/** One of a few: a segmented radio group. `options`: [[value, label], …]. */
export function segments(on, model, name, { label, options }) {
  const group = uid("group");
  const inputs = options.map(([value, text]) => {
    const input = h("input", { type: "radio", name: group, value });
    on.listen(input, "change", () => { if (input.checked) { model.set(name, value); model.save_changes(); } });
    return [value, input, h("label", {}, input, h("span", {}, text))];
  });
  on.follow(model, name, () => { for (const [value, input] of inputs) input.checked = value === model.get(name); });
  return h("fieldset", { class: "sd-control", dataset: { control: name } }, h("legend", {}, label), h("div", { class: "sd-segments" }, inputs.map((x) => x[2])));
}

/** One of many: a native select. `options`: [[value, label], …] or [[group, [[value, label], …]], …]. */
export function select(on, model, name, { label, options }) {
  const id = uid("select");
  const option = ([value, text]) => h("option", { value }, text);
  const input = h("select", { id }, options.map(([value, text]) => (Array.isArray(text) ? h("optgroup", { label: value }, text.map(option)) : option([value, text]))));
  on.listen(input, "change", () => { model.set(name, input.value); model.save_changes(); });
  on.follow(model, name, () => { input.value = model.get(name); });
  return h("div", { class: "sd-control", dataset: { control: name } }, h("label", { for: id }, label), input);
}

/** On or off. */
export function toggle(on, model, name, { label }) {
  const input = h("input", { type: "checkbox" });
  on.listen(input, "change", () => { model.set(name, input.checked); model.save_changes(); });
  on.follow(model, name, () => { input.checked = Boolean(model.get(name)); });
  return h("label", { class: "sd-toggle", dataset: { control: name } }, input, label);
}

/** A number that the reader types. */
export function numberField(on, model, name, { label, width = "6em" }) {
  const entry = model.get("schema")[name];
  const id = uid("number");
  const input = h("input", { type: "number", id, min: entry.min, max: entry.max, step: entry.step ?? (entry.type === "integer" ? 1 : "any"), style: { width } });
  on.listen(input, "change", () => {
    model.set(name, input.value === "" ? entry.default : Number(input.value));
    input.value = model.get(name);
    model.save_changes();
  });
  on.follow(model, name, () => { if (document.activeElement !== input) input.value = model.get(name); });
  return h("div", { class: "sd-control", dataset: { control: name } }, h("label", { for: id }, label), input);
}

/** A line (rows = 1) or a box of text that the reader types. */
export function textField(on, model, name, { label, rows = 1, placeholder = "" }) {
  const entry = model.get("schema")[name];
  const id = uid("text");
  const input = h(rows > 1 ? "textarea" : "input", { id, rows: rows > 1 ? rows : null, type: rows > 1 ? null : "text", maxlength: entry.maxLength, placeholder, spellcheck: "false" });
  on.listen(input, "input", () => model.set(name, input.value));
  on.listen(input, "change", () => model.save_changes());
  on.follow(model, name, () => { if (input.value !== model.get(name)) input.value = model.get(name); });
  return h("div", { class: "sd-control sd-wide", dataset: { control: name } }, h("label", { for: id }, label), input);
}

export const button = (on, text, fn, { primary = false, quiet = false, label, ...rest } = {}) => {
  const element = h("button", { type: "button", class: primary ? "sd-primary" : quiet ? "sd-quiet" : null, "aria-label": label, ...rest }, text);
  on.listen(element, "click", fn);
  return element;
};
