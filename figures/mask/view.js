// Draws `mask`: the outputs of one verification pass over its inputs, a fan from the output pointed at to what it
// may see, the triangular mask, what a rejection discards, and the recorded tensors that show one pass to be as good
// as m + 1 passes.

import { frame } from "#sd/frame.js";
import { button, slider, textField } from "#sd/controls.js";
import { frameThrottle, h } from "#sd/dom.js";
import { num, percent } from "#sd/format.js";
import { update } from "#sd/model.js";
import { STYLE, diagram } from "./diagram.js";
import { NONE_REJECTED, tokenize, verification } from "./model.js";

export function render({ model, el }) {
  const f = frame({ model, el });
  const { on, t, lang } = f;
  const { record } = model.get("data");
  const [engine, witness] = record.engines;
  const quoted = (token) => (lang === "zh" ? `“${token.trim()}”` : `‘${token.trim()}’`);
  const alone = (position) => engine.alone[position - engine.alone[0].position];

  const recorded = () => model.get("sentence") === record.sentence || tokenize(model.get("sentence")).length < 2;
  const state = () => verification(
    recorded() ? record.tokens.map((x) => x.text) : tokenize(model.get("sentence")),
    { m: model.get("m"), output: model.get("output"), reject: model.get("reject") });
  /** The first drafted token that is not the recorded model's first choice; 0 if there is none. */
  const greedy = (pass) => pass.outputs.find((o) => o.checks && alone(o.position).id !== record.tokens[o.position + 1].id)?.checks ?? 0;

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
    const sentences = [];
    if (pass.selected === 0) sentences.push(t("say.none", { count: pass.m + 1 }));
    else {
      const output = pass.outputs[pass.selected - 1];
      const key = !output.checks ? "bonus" : output.index === 1 ? "first" : "check";
      const token = output.checks ? quoted(pass.tokens[output.position + 1]) : "";
      sentences.push(t(`say.${key}`, { index: output.index, here: quoted(pass.tokens[output.position]), sees: output.sees, inputs: pass.tokens.length, before: output.index - 1, m: pass.m, token }));
      if (recorded()) {
        const row = alone(output.position);
        const choice = quoted(row.text);
        if (!output.checks) sentences.push(t("say.free", { choice }));
        else if (row.id === record.tokens[output.position + 1].id) sentences.push(t("say.same"));
        else sentences.push(t("say.other", { choice, token, p: percent(row.next.p, lang, 1) }));
      }
    }
    if (pass.gained) {
      sentences.push(t(pass.rejected ? "say.rejected" : "say.accepted", { rejected: pass.rejected, gained: pass.gained, m: pass.m }));
      const would = recorded() ? greedy(pass) : pass.rejected;
      if (would !== pass.rejected) sentences.push(t(would ? "say.greedy" : "say.greedy_none", { index: would }));
    }
    return sentences.join(lang === "zh" ? "" : " ");
  }

  function numbers(pass) {
    const known = recorded();
    const together = known ? engine.together[pass.m - 1].rows : [];
    return [
      ["output", "on", "sees", "checks", "fate", ...(known ? ["choice", "difference"] : [])].map((c) => t(`table.${c}`)),
      ...pass.outputs.map((o, i) => [
        String(o.index), pass.tokens[o.position].trim(), String(o.sees),
        o.checks ? pass.tokens[o.position + 1].trim() : t("what.bonus"), t(`fate.${o.fate}`),
        ...(known ? [together[i].text.trim(), num(together[i].difference, lang, 2)] : []),
      ]),
    ];
  }

  // --- the tensors -----------------------------------------------------------------------------------

  const proofTitle = h("h4", { class: "mk-title" });
  const proofWhy = h("p", { class: "sd-note" });
  const proofTable = h("table", { class: "sd-table" });
  const proofTarget = h("p", { class: "sd-note" }), proofWitness = h("p", { class: "sd-note" });
  const foreign = h("p", { class: "sd-note mk-note" });
  const gap = (x) => (x === 0 ? t("proof.zero") : num(x, lang, 2));
  const tally = (which, m) => {
    const rows = which.together[m - 1].rows;
    const single = which.alone.slice(-m - 1);
    return {
      precision: which.precision.toUpperCase(), rows: m + 1, logits: num((m + 1) * record.vocabulary, lang, 9),
      agree: rows.filter((row, i) => row.id === single[i].id).length, difference: gap(Math.max(...rows.map((row) => row.difference))),
    };
  };

  /** The recorded sentence's, for this m; a sentence of the reader's changes nothing here. */
  function drawProof(m) {
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
    proofTarget.textContent = t("proof.target", tally(engine, m));
    proofWitness.textContent = t("proof.witness", tally(witness, m));
  }

  // --- drawing -----------------------------------------------------------------------------------------

  function draw() {
    const pass = state();
    const known = recorded();
    if (width > 0) {
      const next = JSON.stringify([pass.tokens, pass.m, width, known]);
      if (next !== shape) {
        shape = next;
        const choices = known ? pass.outputs.map((o) => ({ text: alone(o.position).text, agrees: o.checks ? alone(o.position).id === record.tokens[o.position + 1].id : null })) : null;
        const focused = picture ? picture.outputs.indexOf(document.activeElement) : -1;
        picture = diagram({ pass, choices, width, t, act: { choose, point, reject } });
        holder.replaceChildren(picture.svg);
        if (focused >= 0) picture.focusOutput(Math.min(focused, pass.m));
      }
      paint();
    }
    f.badge(known ? ["recorded", `${record.device.name}, ${record.created.slice(0, 10)}`] : "ideal");
    f.say(describe(pass));
    f.table(numbers(pass));
    foreign.textContent = model.get("sentence") === record.sentence ? "" : t(known ? "proof.short" : "proof.other");
    back.hidden = model.get("sentence") === record.sentence;
    for (const each of [judge, ...compared]) each.hidden = !known;
    rejectInput.max = pass.m + 1;
    rejectInput.value = model.get("reject");
    for (const [key, choice] of presets) choice.setAttribute("aria-pressed", String({ first: 1, last: pass.m, bonus: pass.m + 1 }[key] === pass.selected));
    drawProof(Math.min(model.get("m"), engine.together.length));
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
    update(model, { reject: greedy(state()) || NONE_REJECTED });
    f.announce(describe(state()));
  });
  const back = button(on, t("control.sentence_back"), () => update(model, { sentence: record.sentence }));
  const rejectSlider = slider(on, model, "reject", {
    label: t("control.reject"),
    format: (x) => (x === 0 ? t("control.reject_open") : x > state().m ? t("control.reject_none") : t("control.reject_at", { index: x })),
  });
  const rejectInput = rejectSlider.querySelector("input");
  // The last place of the slider says "all accepted", whatever m is; kept so when m grows.
  on.listen(rejectInput, "input", () => { if (Number(rejectInput.value) > state().m) model.set("reject", NONE_REJECTED); });

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
    sentence, back);
  f.root.querySelector(".sd-foot").before(foreign, h("div", { class: "mk-proof" }, proofTitle, proofWhy,
    h("div", { class: "sd-tablewrap", tabindex: 0, role: "region", "aria-label": t("ui.table") }, proofTable), proofTarget, proofWitness,
    h("p", { class: "sd-note" }, t("proof.source", { model: record.model, device: record.device.name, date: record.created.slice(0, 10), command: record.command }))));

  const redraw = frameThrottle(draw);
  const repaint = frameThrottle(paint);
  on.add(() => { redraw.cancel(); repaint.cancel(); });
  for (const name of ["sentence", "m", "output", "reject"]) {
    model.on(`change:${name}`, redraw.request);
    on.add(() => model.off(`change:${name}`, redraw.request));
  }
  on.resize(f.stage, (w) => { width = w; draw(); });
  return () => f.end();
}
