// What stands around every figure: title, badges, a sentence to try first, a guess before the answer,
// the stage, the controls, the sentence that reads the state aloud, a puzzle, a table of its numbers,
// reset, copy link, embed. A view fills the stage and the controls.

import { adoptStyle, h, uid, scope } from "#sd/dom.js";
import { createBet } from "#sd/bet.js";
import { button } from "#sd/controls.js";
import { createEmbed } from "#sd/embed.js";
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

  const bet = createBet(on, model, t);

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
  const copy = async (text, note = copied) => {
    try {
      await navigator.clipboard.writeText(text);
      note.textContent = t("ui.copied");
    } catch {
      // No clipboard (an insecure origin, a refused permission): show the text to copy by hand.
      note.replaceChildren(t("ui.copy_failed"), " ", h("input", { type: "text", value: text, readonly: true, "aria-label": t("ui.copy_link"), onfocus: (e) => e.target.select() }));
      note.querySelector("input").focus();
    }
  };
  const pageUrl = () => {
    const base = model.get("pageUrl") ?? location.href.split(/[?#]/)[0];
    const q = [`lang=${model.get("lang")}`, query(model)].filter(Boolean).join("&");
    return `${base}?${q}#figure-${id}`;
  };
  // What stands inside a notebook has no address of its own.
  const link = location.protocol === "about:" ? "" : button(on, t("ui.copy_link"), () => copy(pageUrl()), { quiet: true });
  const embed = createEmbed({ on, model, t, copy });
  foot.append(button(on, t("ui.reset"), () => reset(model), { quiet: true }), puzzle, numbers, h("span", { class: "sd-spacer" }), link, embed?.toggle ?? "", copied);

  for (const { name, value, unknown } of model.get("clamped") ?? [])
    notes.append(h("p", { class: "sd-warn" }, unknown ? t("ui.unknown_setting", { name }) : t("ui.clamped", { name: name in model.get("schema") ? `${id}.${name}` : name, value })));

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
      h("h3", { class: "sd-title", id: titleId }, model.get("number") ? h("a", { class: "sd-number", href: `#figure-${id}` }, t("ui.figure", { number: model.get("number") })) : null, t("title")), badges),
    h("p", { class: "sd-try" }, h("b", {}, t("ui.try_first"), " "), t("try")),
    notes, bet.element, shared, stage, say, announcer, controls, h("p", { class: "sd-caption" }, t("caption")), foot, panels.puzzle.element, panels.table.element, embed?.dialog);
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
    reveal: bet.reveal,
    /** The puzzle's condition holds. */
    solve() { if (!model.get("solved")) update(model, { solved: true }); },
    end() { on.end(); },
  };
}
