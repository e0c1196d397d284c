// The style guide: a figure that does nothing but hold every part of a frame, and a real chart beside it.

import { button, numberField, segments, select, slider, textField, toggle } from "#sd/controls.js";
import { h } from "#sd/dom.js";
import { frame } from "#sd/frame.js";
import { createModel } from "#sd/model.js";
import { modelOf, mount, worded } from "#sd/mount.js";
import { createPlayer, transport } from "#sd/player.js";

const { lang, base, strings, demo, figure, marks } = JSON.parse(document.getElementById("boot").textContent);

for (const node of document.querySelectorAll("[data-token]")) node.style.background = `var(--sd-${node.dataset.token})`;
for (const node of document.querySelectorAll("[data-size]")) node.style.fontSize = `var(--sd-${node.dataset.size})`;
for (const node of document.querySelectorAll("[data-length]")) node.style.width = `var(--sd-${node.dataset.length})`;
for (const node of document.querySelectorAll("[data-corner]")) node.style.borderRadius = `var(--sd-${node.dataset.corner})`;

const SCHEMA = {
  m: { type: "integer", default: 4, min: 1, max: 16, step: 1 },
  kind: { type: "choice", default: "one", choices: ["one", "two"] },
  place: { type: "choice", default: "one", choices: ["one", "two"] },
  extra: { type: "boolean", default: false },
  count: { type: "integer", default: 8, min: 0, max: 99, step: 1 },
  words: { type: "text", default: "", maxLength: 80 },
  t: { type: "number", default: 0, min: 0, max: 8, private: true },
  bet: { type: "any", default: -1, private: true, keep: true },
  solved: { type: "any", default: false, private: true, keep: true },
};

const model = createModel({ schema: SCHEMA, extras: { id: "demo", lang, number: null, strings: { ...strings, ...demo }, betAnswer: 1, data: {} } });
const f = frame({ model, el: document.getElementById("demo") });
const { on, t } = f;
f.badge("live", "recorded", "ideal");
const options = [["one", t("option.one")], ["two", t("option.two")]];
const player = createPlayer(on, model, { duration: () => 8, rate: () => 2, next: (at, by) => Math.round(at) + by, element: f.root });
const legend = h("ul", { class: "sd-legend" }, marks.map((mark) => h("li", {}, h("span", { class: "sd-swatch", style: { background: `var(--sd-${mark})` } }), t(`ui.mark_${mark}`))));
f.stage.append(legend, transport(on, model, player, { t, duration: () => 8, format: (at) => at.toFixed(1) }));
f.controls.append(
  slider(on, model, "m", { label: t("control.m") }),
  segments(on, model, "kind", { label: t("control.kind"), options }),
  select(on, model, "place", { label: t("control.place"), options }),
  numberField(on, model, "count", { label: t("control.count") }),
  textField(on, model, "words", { label: t("control.words") }),
  toggle(on, model, "extra", { label: t("control.extra") }),
  button(on, t("control.primary"), () => player.toggle(), { primary: true }),
  button(on, t("control.button"), () => player.restart()),
);
on.follow(model, "*", () => {
  f.say(t("say", { m: model.get("m") }));
  f.table([[t("table.name"), t("table.value")], ["m", String(model.get("m"))]], t("table.caption"));
});

const spec = worded({ ...figure, number: null }, strings);
await mount(spec, modelOf(spec, { extras: { base } }), document.getElementById("chart"));
document.documentElement.dataset.ready = "true";
