// What stands around every figure: title, badges, a sentence to try first, a guess before the answer,
// the stage, the controls, the sentence that reads the state aloud, a puzzle, a table of its numbers,
// reset, copy link, embed. A view fills the stage and the controls.

import { adoptStyle, h, uid, scope } from "#sd/dom.js";
import { button } from "#sd/controls.js";
import { fillTemplate } from "#sd/format.js";
import { reset, update, publicState } from "#sd/model.js";

/** t("try"), t("control.k"), t("ui.play", {…}): words of this figure and of the interface. */
export function words(model) {
  const strings = model.get("strings");
  return (key, values) => {
    const template = strings[key];
    if (template === undefined) { console.error(`missing string: ${key}`); return key; }
    return fillTemplate(template, values);
  };
}

/** The state as URL parameters: { "roofline.k": 5 } → "roofline.k=5". */
export function query(model) {
  const id = model.get("id");
  return Object.entries(publicState(model)).map(([k, v]) => `${id}.${k}=${encodeURIComponent(String(v))}`).join("&");
}

export function frame({ model, el }) {
  const on = scope();
  const t = words(model);
  const id = model.get("id");
  const titleId = uid("title");

  const badges = h("span", { class: "sd-badges" });
  const stage = h("div", { class: "sd-stage" });
  const controls = h("div", { class: "sd-controls" });
  const say = h("p", { class: "sd-say", id: uid("say") });
  const announcer = h("p", { class: "sd-visually-hidden", "aria-live": "polite" });
  const notes = h("div", { class: "sd-notes" });
  const table = h("table", { class: "sd-table" });
  const panels = {};
  const foot = h("div", { class: "sd-foot" });

  // --- the guess -------------------------------------------------------------------------------
  const betCount = Object.keys(model.get("strings")).filter((k) => /^bet\.option\.\d+$/.test(k)).length;
  let revealed = model.get("betAnswer") ?? null; // an index, or null until the view knows
  let why = {};
  const betWhy = h("p", { class: "sd-bet-why", "aria-live": "polite" });
  const betButtons = Array.from({ length: betCount }, (_, i) =>
    button(on, t(`bet.option.${i + 1}`), () => update(model, { bet: i })));
  const drawBet = () => {
    const choice = model.get("bet");
    betButtons.forEach((b, i) => {
      b.setAttribute("aria-pressed", String(choice === i));
      const known = choice >= 0 && revealed !== null;
      if (known && i === revealed) b.dataset.verdict = "right";
      else if (known && i === choice) b.dataset.verdict = "wrong";
      else delete b.dataset.verdict;
    });
    const text = choice < 0 ? "" : revealed === null ? t("ui.bet_wait") : t("bet.why", why);
    if (betWhy.textContent !== text) betWhy.textContent = text;
  };
  const bet = betCount === 0 ? null : h("div", { class: "sd-bet", role: "group", "aria-label": t("ui.bet") },
    h("p", {}, h("b", {}, t("ui.bet"), " "), t("bet.question")), h("div", { class: "sd-bet-options" }, betButtons), betWhy);
  if (bet) on.follow(model, "bet", drawBet);

  // --- panels behind the buttons of the foot -----------------------------------------------------
  const panel = (name, label, ...content) => {
    const panelId = uid(name);
    const element = h("div", { class: "sd-panel", id: panelId, hidden: true }, content);
    const toggle = button(on, label, () => {
      const open = element.hidden;
      for (const [other, entry] of Object.entries(panels)) if (other !== name) { entry.element.hidden = true; entry.toggle.setAttribute("aria-expanded", "false"); }
      element.hidden = !open;
      toggle.setAttribute("aria-expanded", String(open));
    }, { quiet: true, "aria-expanded": "false", "aria-controls": panelId });
    panels[name] = { element, toggle };
    return toggle;
  };
  const solved = h("p", { class: "sd-solved", "aria-live": "polite" });
  const puzzle = panel("puzzle", t("ui.puzzle"),
    h("p", { class: "sd-puzzle" }, t("puzzle.text")),
    h("details", {}, h("summary", {}, t("ui.puzzle_hint")), h("p", {}, t("puzzle.hint"))), solved);
  on.follow(model, "solved", () => { solved.textContent = model.get("solved") ? `✓ ${t("ui.puzzle_solved", { why: t("puzzle.answer") })}` : ""; });
  const numbers = panel("table", t("ui.table"), h("div", { class: "sd-tablewrap", tabindex: 0, role: "region", "aria-label": t("ui.table") }, table));

  const copied = h("span", { "aria-live": "polite", class: "sd-note" });
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      copied.textContent = t("ui.copied");
    } catch {
      // No clipboard (an insecure origin, a refused permission): show the text to copy by hand.
      copied.replaceChildren(t("ui.copy_failed"), " ", h("input", { type: "text", value: text, readonly: true, "aria-label": t("ui.copy_link"), onfocus: (e) => e.target.select() }));
      copied.querySelector("input").focus();
    }
  };
  const pageUrl = () => {
    const base = model.get("pageUrl") ?? location.href.split(/[?#]/)[0];
    const q = [`lang=${model.get("lang")}`, query(model)].filter(Boolean).join("&");
    return `${base}?${q}#figure-${id}`;
  };
  const link = button(on, t("ui.copy_link"), () => copy(pageUrl()), { quiet: true });
  const snippet = h("pre", { tabindex: 0 });
  const embedUrl = model.get("embedUrl");
  const embed = embedUrl ? panel("embed", t("ui.embed"), h("p", {}, t("ui.embed_hint")), snippet,
    button(on, t("ui.copy"), () => copy(snippet.textContent))) : null;
  if (embed) on.follow(model, "*", () => {
    const url = new URL(embedUrl, location.href);
    url.search = [`lang=${model.get("lang")}`, query(model)].filter(Boolean).join("&");
    snippet.textContent = `<iframe src="${url.href.replaceAll("&", "&amp;")}" title="${t("title").replaceAll('"', "&quot;")}" width="100%" height="640" loading="lazy" style="border:0"></iframe>`;
  });
  foot.append(button(on, t("ui.reset"), () => reset(model), { quiet: true }), puzzle, numbers, h("span", { class: "sd-spacer" }), link, embed ?? "", copied);

  const clamped = model.get("clamped") ?? [];
  for (const { name, value } of clamped)
    notes.append(h("p", { class: "sd-warn" }, t("ui.clamped", { name: `${id}.${name}`, value })));

  // --- values that come from other figures (shared.js) ---------------------------------------------
  const shared = h("p", { class: "sd-shared" });
  const nameOf = (name) => t(`ui.shared_${name.startsWith("custom_") ? "hardware" : name}`);
  on.follow(model, ["followed", "linked"], () => {
    const followed = model.get("followed") ?? [], apart = model.get("linked") === false;
    shared.hidden = !apart && followed.length === 0;
    const link = (linked) => () => { model.set("linked", linked); model.save_changes(); };
    shared.replaceChildren(h("span", { "aria-hidden": "true" }, apart ? "⊘ " : "⇄ "), ...(apart
      ? [t("ui.shared_apart"), " ", h("button", { type: "button", class: "sd-quiet", onclick: link(true) }, t("ui.shared_join"))]
      : [followed.map(({ names, number, limited }) => t(limited ? "ui.shared_limit" : "ui.shared_follow", { names: [...new Set(names.map(nameOf))].join(model.get("lang") === "zh" ? "、" : ", "), figure: t("ui.figure", { number }) })).join(" "), " ", h("button", { type: "button", class: "sd-quiet", onclick: link(false) }, t("ui.shared_leave"))]));
  });

  const root = h("div", { class: "sd-figure", id: `sd-${id}`, dataset: { figure: id }, role: "group", "aria-labelledby": titleId },
    h("div", { class: "sd-head" },
      h("h3", { class: "sd-title", id: titleId }, model.get("number") ? h("span", { class: "sd-number" }, t("ui.figure", { number: model.get("number") })) : null, t("title")), badges),
    h("p", { class: "sd-try" }, h("b", {}, t("ui.try_first"), " "), t("try")),
    notes, bet, shared, stage, say, announcer, controls, foot, panels.puzzle.element, panels.table.element, panels.embed?.element);
  el.append(root);
  on.add(() => root.remove());

  return {
    on, t, root, stage, controls,
    lang: model.get("lang"),
    /** Rules of this figure alone. */
    style: (css) => adoptStyle(root, css),
    /** Badges: any of "live", "recorded", "ideal", with words of where it was measured. */
    badge(...kinds) {
      badges.replaceChildren(...kinds.map((kind) => {
        const [name, detail] = [kind].flat();
        return h("span", { class: "sd-badge", dataset: { kind: name }, title: t(`ui.badge_${name}_tip`) }, detail ? `${t(`ui.badge_${name}`)} · ${detail}` : t(`ui.badge_${name}`));
      }));
    },
    /** The sentence under the figure: follows the state. */
    say(text) { if (say.textContent !== text) say.textContent = text; },
    /** Told to screen readers once: results, never every step. */
    announce(text) { announcer.textContent = text; },
    /** Rows of plain values; the first row is the head. */
    table(rows, caption) {
      table.replaceChildren(caption ? h("caption", {}, caption) : "",
        h("thead", {}, h("tr", {}, rows[0].map((c) => h("th", { scope: "col" }, c)))),
        h("tbody", {}, rows.slice(1).map((r) => h("tr", {}, r.map((c, i) => (i === 0 ? h("th", { scope: "row" }, c) : h("td", {}, c)))))));
    },
    /** The answer to the bet is known: option index, and values for `bet.why`. */
    reveal(index, values = {}) { revealed = index; why = values; if (bet) drawBet(); },
    /** The puzzle's condition holds. */
    solve() { if (!model.get("solved")) update(model, { solved: true }); },
    end() { on.end(); },
  };
}
