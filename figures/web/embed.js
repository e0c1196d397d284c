// The dialog behind "embed": a preview, the choices, and the lines to copy.

import { h, uid } from "#sd/dom.js";
import { button } from "#sd/controls.js";
import { CONTROLS, THEMES } from "#sd/alone.js";
import { publicState } from "#sd/model.js";

const escape = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

/**
 * The address of the figure alone: `url` with the language, what differs from the defaults, and the state.
 * An address that already names a language is a page of that language.
 */
export function addressOf(model, { url, lang, theme = "auto", controls = "all", state = true }) {
  const address = new URL(url, location.href);
  address.hash = "";
  address.search = "";
  address.searchParams.set("lang", lang);
  if (theme !== "auto") address.searchParams.set("theme", theme);
  if (controls !== "all") address.searchParams.set("controls", controls);
  if (state) for (const [name, value] of Object.entries(publicState(model))) address.searchParams.set(`${model.get("id")}.${name}`, String(value));
  return address.href;
}

/** The button and its dialog; null where nobody says at which address the figure stands alone. */
export function createEmbed({ on, model, t, copy }) {
  const url = model.get("embedUrl");
  if (url === undefined || url === null) return null;
  const languages = Object.keys(model.get("strings")).filter((k) => /^ui\.language_\w+$/.test(k)).map((k) => k.slice("ui.language_".length));
  const script = model.get("embedScript"); // the address of frames.js, where there is one
  const choice = { lang: model.get("lang"), theme: "auto", controls: "all", state: true, kind: script ? "script" : "frame" };

  const snippet = h("pre", { tabindex: 0, "aria-label": t("ui.embed_hint") });
  const preview = h("iframe", { class: "sd-embed-preview", title: t("ui.embed_preview") });
  let themed = false; // the preview knows the colours around it
  const draw = () => {
    const address = addressOf(model, { url, ...choice });
    snippet.textContent = choice.kind === "script"
      ? `<a class="sd-embed" href="${escape(address)}">${escape(t("title"))}</a>\n<script src="${escape(new URL(script, location.href).href)}" defer><\/script>`
      : `<iframe src="${escape(address)}" title="${escape(t("title"))}" width="100%" height="640" loading="lazy" style="border:0"></iframe>`;
    if (!dialog.open || preview.src === address) return;
    preview.src = address;
    themed = false;
  };
  const pick = (name, label, options) => {
    const id = uid("embed");
    const input = h("select", { id, name }, options.map(([value, text]) => h("option", { value }, text)));
    input.value = choice[name];
    on.listen(input, "change", () => { choice[name] = input.value; draw(); });
    return h("div", { class: "sd-control" }, h("label", { for: id }, label), input);
  };
  const state = h("input", { type: "checkbox", checked: true, name: "state" });
  on.listen(state, "change", () => { choice.state = state.checked; draw(); });

  const heading = h("h4", { id: uid("embed") }, t("ui.embed"));
  const dialog = h("dialog", { class: "sd-dialog", "aria-labelledby": heading.id },
    h("div", { class: "sd-head" }, heading, button(on, t("ui.close"), () => dialog.close(), { quiet: true })),
    h("div", { class: "sd-dialog-choices" },
      pick("lang", t("ui.language"), languages.map((each) => [each, t(`ui.language_${each}`)])),
      pick("theme", t("ui.embed_theme"), THEMES.map((each) => [each, t(each === "auto" ? "ui.embed_theme_auto" : `ui.theme_${each}`)])),
      pick("controls", t("ui.controls"), CONTROLS.map((each) => [each, t(`ui.embed_controls_${each}`)])),
      script ? pick("kind", t("ui.embed_kind"), ["script", "frame"].map((each) => [each, t(`ui.embed_kind_${each}`)])) : null,
      h("label", { class: "sd-toggle" }, state, t("ui.embed_state"))),
    h("p", {}, t("ui.embed_hint")), snippet,
    button(on, t("ui.copy"), () => copy(snippet.textContent, dialog.lastChild), { primary: true }),
    preview, h("p", { class: "sd-note", "aria-live": "polite" }));
  // The preview tells its height as it would on any page, and hears the theme as from frames.js.
  on.listen(window, "message", ({ source, data }) => {
    if (!source || source !== preview.contentWindow || data?.type !== "sd-height" || !(data.height > 0)) return;
    preview.style.height = `${Math.min(5000, data.height)}px`;
    if (!themed) source.postMessage({ type: "sd-theme", theme: getComputedStyle(preview).colorScheme }, "*");
    themed = true;
  });
  on.listen(dialog, "close", () => preview.removeAttribute("src"));
  // A click beside the dialog closes it, as Escape does.
  on.listen(dialog, "click", (event) => { if (event.target === dialog) dialog.close(); });
  return {
    dialog,
    toggle: button(on, t("ui.embed"), () => { dialog.showModal(); draw(); }, { quiet: true, "aria-haspopup": "dialog" }),
  };
}
