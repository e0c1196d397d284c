// Draws `mask`: the outputs of one verification pass over its inputs, a fan from the output pointed at to what it
// may see, the triangular mask, what a rejection discards, and the tensors that show one pass to be as good as m + 1
// passes: recorded ones, or those that the server has computed for the reader's sentence.

import { frame } from "#sd/frame.js";
import { button, slider, textField } from "#sd/controls.js";
import { frameThrottle, h, uid } from "#sd/dom.js";
import { measureButton, measuring } from "#sd/measure.js";
import { num, percent } from "#sd/format.js";
import { update } from "#sd/model.js";
import { STYLE, diagram } from "./diagram.js";
import { NONE_REJECTED, tokenize, verification } from "./model.js";

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const shipped = model.get("data").record;
  const quoted = (token) => (lang === "zh" ? `“${token.trim()}”` : `‘${token.trim()}’`);
  const server = measuring(model);
  const asked = () => ({ what: "mask", sentence: model.get("sentence") });
  const live = () => server.found(asked())?.record ?? null;
  const isShipped = () => model.get("sentence") === shipped.sentence;

  /** What a model has computed for the sentence on show; null where the sentence is the reader's own. */
  const known = () => live() ?? (isShipped() || tokenize(model.get("sentence")).length < 2 ? shipped : null);
  const alone = ({ engines: [engine] }, position) => engine.alone[position - engine.alone[0].position];
  const agrees = (record, { position }) => alone(record, position).id === record.tokens[position + 1].id;
  const state = () => verification(
    known()?.tokens.map((x) => x.text) ?? tokenize(model.get("sentence")),
    { m: model.get("m"), output: model.get("output"), reject: model.get("reject") });
  /** The first drafted token that is not the model's first choice; 0 if there is none. */
  const greedy = (record, pass) => pass.outputs.find((o) => o.checks && !agrees(record, o))?.checks ?? 0;

  let width = 0, shape = "", picture = null, pointed = null;
  const holder = h("div", { class: "mk-holder" });

  function choose(index) { pointed = null; update(model, { output: index }); }
  function point(index) { pointed = index; repaint.request(); }
  function reject(index) {
    const pass = state();
    update(model, { reject: pass.rejected === index ? 0 : index });
    f.announce(describe(state()));
  }

  // --- words -----------------------------------------------------------------------------------------

  function describe(pass) {
    const sentences = [], record = known();
    if (pass.selected === 0) sentences.push(t("say.none", { count: pass.m + 1 }));
    else {
      const output = pass.outputs[pass.selected - 1];
      const key = !output.checks ? "bonus" : output.index === 1 ? "first" : "check";
      const token = output.checks ? quoted(pass.tokens[output.position + 1]) : "";
      sentences.push(t(`say.${key}`, { index: output.index, here: quoted(pass.tokens[output.position]), sees: output.sees, inputs: pass.tokens.length, before: output.index - 1, m: pass.m, token }));
      if (record) {
        const row = alone(record, output.position);
        const choice = quoted(row.text);
        if (!output.checks) sentences.push(t("say.free", { choice }));
        else if (agrees(record, output)) sentences.push(t("say.same"));
        else sentences.push(t("say.other", { choice, token, p: percent(row.next.p, lang, 1) }));
      }
    }
    if (pass.gained) {
      sentences.push(t(pass.rejected ? "say.rejected" : "say.accepted", { rejected: pass.rejected, gained: pass.gained, m: pass.m }));
      const would = record ? greedy(record, pass) : pass.rejected;
      if (would !== pass.rejected) sentences.push(t(would ? "say.greedy" : "say.greedy_none", { index: would }));
    }
    return sentences.join(lang === "zh" ? "" : " ");
  }

  function numbers(pass) {
    const together = known()?.engines[0].together[pass.m - 1].rows ?? null;
    return [
      ["output", "on", "sees", "checks", "fate", ...(together ? ["choice", "difference"] : [])].map((c) => t(`table.${c}`)),
      ...pass.outputs.map((o, i) => [
        String(o.index), pass.tokens[o.position].trim(), String(o.sees),
        o.checks ? pass.tokens[o.position + 1].trim() : t("what.bonus"), t(`fate.${o.fate}`),
        ...(together ? [together[i].text.trim(), num(together[i].difference, lang, 2)] : []),
      ]),
    ];
  }

  // --- the tensors -----------------------------------------------------------------------------------

  const proofTitle = h("h4", { class: "mk-title", id: uid("proof") });
  const proofWhy = h("p", { class: "sd-note" });
  const proofTable = h("table", { class: "sd-table" });
  const [proofTarget, proofWitness, proofSource] = Array.from({ length: 3 }, () => h("p", { class: "sd-note" }));
  const foreign = h("p", { class: "sd-note mk-note" });
  const gap = (x) => (x === 0 ? t("proof.zero") : num(x, lang, 2));
  const tally = (record, which, m) => {
    const rows = which.together[m - 1].rows;
    const single = which.alone.slice(-m - 1);
    return {
      precision: which.precision.toUpperCase(), rows: m + 1, logits: num((m + 1) * record.vocabulary, lang, 9),
      agree: rows.filter((row, i) => row.id === single[i].id).length, difference: gap(Math.max(...rows.map((row) => row.difference))),
    };
  };

  /** Those of the sentence on show, or of the recorded one where no model has read it. */
  function drawProof() {
    const record = known() ?? shipped, [engine, witness] = record.engines;
    const m = Math.min(model.get("m"), engine.together.length);
    const rows = engine.together[m - 1].rows;
    const single = engine.alone.slice(-m - 1);
    proofTitle.textContent = t("proof.title", { count: m + 1 });
    proofWhy.textContent = t("proof.why", { count: m + 1 });
    proofTable.replaceChildren(
      h("thead", {}, h("tr", {}, ["output", "together", "alone", "difference"].map((c) => h("th", { scope: "col" }, t(`proof.${c}`))))),
      h("tbody", {}, rows.map((row, i) => h("tr", {},
        h("th", { scope: "row" }, i + 1), h("td", {}, quoted(row.text)),
        h("td", {}, quoted(single[i].text), " ", h("span", { class: row.id === single[i].id ? "mk-same" : "sd-warn" }, row.id === single[i].id ? `✓ ${t("proof.same")}` : `✗ ${t("proof.differs")}`)),
        h("td", {}, gap(row.difference))))));
    proofTarget.textContent = t("proof.target", tally(record, engine, m));
    proofWitness.hidden = !witness;
    if (witness) proofWitness.textContent = t("proof.witness", tally(record, witness, m));
    const halves = record.tokens.some((x) => x.text.includes("\ufffd")) ? t("proof.halves") : "";
    const place = { model: record.model, device: record.device.name, date: record.created.slice(0, 10), time: record.created.slice(11, 16), command: record.command };
    proofSource.textContent = [t(record === shipped ? "proof.source" : "proof.source_live", place), halves].filter(Boolean).join(" ");
  }

  // --- drawing -----------------------------------------------------------------------------------------

  function draw() {
    const pass = state();
    const record = known();
    if (width > 0) {
      const next = JSON.stringify([pass.tokens, pass.m, width, record?.created]);
      if (next !== shape) {
        shape = next;
        const choices = record && pass.outputs.map((o) => ({ text: alone(record, o.position).text, agrees: o.checks ? agrees(record, o) : null }));
        const focused = picture ? picture.outputs.indexOf(document.activeElement) : -1;
        picture = diagram({ pass, choices, width, t, act: { choose, point, reject } });
        holder.replaceChildren(picture.svg);
        if (focused >= 0) picture.focusOutput(Math.min(focused, pass.m));
      }
      paint();
    }
    f.badge(!record ? "ideal" : record === shipped ? ["recorded", `${record.device.name}, ${record.created.slice(0, 10)}`] : ["live", record.device.name]);
    f.say(describe(pass));
    f.table(numbers(pass));
    foreign.textContent = isShipped() || (record && record !== shipped) ? "" : t(record ? "proof.short" : "proof.other");
    back.hidden = isShipped();
    for (const each of [judge, ...compared]) each.hidden = !record;
    run.draw();
    rejectInput.max = pass.m + 1;
    rejectInput.value = model.get("reject");
    for (const [key, choice] of presets) choice.setAttribute("aria-pressed", String({ first: 1, last: pass.m, bonus: pass.m + 1 }[key] === pass.selected));
    drawProof();
    if (pass.m === 6 && pass.gained === 3) f.solve();
  }

  function paint() {
    const pass = state();
    picture?.paint(pass, pointed === null ? pass.selected : Math.min(pointed, pass.m + 1));
  }

  const presets = ["first", "last", "bonus"].map((key) => [key, button(on, t(`control.${key}`), () => {
    const { m } = state();
    choose({ first: 1, last: m, bonus: m + 1 }[key]);
  })]);
  const judge = button(on, t("control.judge"), () => {
    update(model, { reject: greedy(known(), state()) || NONE_REJECTED });
    f.announce(describe(state()));
  });
  const back = button(on, t("control.sentence_back"), () => update(model, { sentence: shipped.sentence }));
  const rejectSlider = slider(on, model, "reject", {
    label: t("control.reject"),
    format: (x) => (x === 0 ? t("control.reject_open") : x > state().m ? t("control.reject_none") : t("control.reject_at", { index: x })),
  });
  const rejectInput = rejectSlider.querySelector("input");
  // The last place of the slider says "all accepted", whatever m is; kept so when m grows.
  on.listen(rejectInput, "input", () => { if (Number(rejectInput.value) > state().m) model.set("reject", NONE_REJECTED); });

  const run = measureButton(on, model, {
    t, request: asked, label: () => t("control.run"),
    note: ({ state: now }) => (now === "done" ? t("note.ran") : t("note.run")),
  });
  const sentence = textField(on, model, "sentence", { label: t("control.sentence") });
  sentence.classList.add("mk-sentence");
  const compared = [t("mark.agrees"), t("mark.differs")].map((text) => h("li", {}, text));
  const legend = h("ul", { class: "sd-legend" },
    [["context", "mark.context"], ["draft", "mark.draft"]].map(([kind, key]) => h("li", {}, h("span", { class: `sd-swatch mk-sw-${kind}` }), t(key))),
    compared, [`✓ ${t("ui.mark_accepted")}`, `◆ ${t("ui.mark_supplied")}`, `★ ${t("ui.mark_bonus")}`, t("mark.void")].map((text) => h("li", {}, text)));

  f.style(STYLE);
  f.stage.append(
    h("div", { class: "mk-presets", role: "group", "aria-label": t("control.presets") }, presets.map((x) => x[1]), judge),
    holder, legend);
  f.controls.append(
    slider(on, model, "m", { label: t("control.m") }), rejectSlider,
    sentence, back, run.element);
  f.root.querySelector(".sd-foot").before(foreign, h("div", { class: "mk-proof" }, proofTitle, proofWhy,
    h("div", { class: "sd-tablewrap", tabindex: 0, role: "region", "aria-labelledby": proofTitle.id }, proofTable), proofTarget, proofWitness, proofSource));

  const redraw = frameThrottle(draw);
  const repaint = frameThrottle(paint);
  on.add(() => { redraw.cancel(); repaint.cancel(); });
  for (const name of ["sentence", "m", "output", "reject"]) {
    model.on(`change:${name}`, redraw.request);
    on.add(() => model.off(`change:${name}`, redraw.request));
  }
  on.add(server.subscribe(redraw.request));
  on.resize(f.stage, (w) => { width = w; draw(); });
  return () => f.end();
}
