// Draws the figure of a self-contained page as one SVG: every box and line of text where the browser put it, every
// colour as the browser resolved it. No style sheet, no foreignObject: other programs read neither.

import { alone } from "#sd/alone.js";
import { settled } from "#sd/data.js";

// Views draw in animation frames. A window that nobody sees has few of them, at times of its own; so that a still
// does not depend on how busy the machine is, they follow the page's clock here, which waits for its work.
globalThis.requestAnimationFrame = (fn) => setTimeout(() => fn(performance.now()), 16);
globalThis.cancelAnimationFrame = clearTimeout;

const SVG = "http://www.w3.org/2000/svg";
/** What of an SVG element's computed style is drawn. */
const DRAWN = ["fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin",
  "opacity", "paint-order", "font-family", "font-size", "font-weight", "font-style", "font-variant-numeric", "letter-spacing", "text-anchor", "dominant-baseline", "text-decoration-line", "writing-mode", "text-orientation", "clip-path", "mask", "stop-color", "stop-opacity"];
const KEPT = new Set(["id", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "width", "height", "d", "points", "transform", "viewBox", "offset", "preserveAspectRatio", "patternUnits", "patternTransform", "patternContentUnits",
  "gradientUnits", "gradientTransform", "dx", "dy", "rotate", "textLength", "lengthAdjust", "clipPathUnits", "markerWidth", "markerHeight", "orient", "refX", "refY", "href"]);

const make = (tag, attributes = {}) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  return node;
};

/** "rgb(1 2 3 / 40%)", "color(srgb …)" and the like as { fill: "#010203", opacity: 0.4 }; null where nothing is seen. */
const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
function paint(colour) {
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = "rgba(0, 0, 0, 0)";
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
  if (a === 0) return null;
  return { colour: `#${[r, g, b].map((x) => x.toString(16).padStart(2, "0")).join("")}`, opacity: a === 255 ? null : Math.round((a / 255) * 1000) / 1000 };
}

/** A still looks as on paper: what is said for print holds. */
function asPrinted() {
  const rules = [...document.styleSheets, ...document.adoptedStyleSheets].flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSMediaRule && rule.conditionText === "print").flatMap((rule) => [...rule.cssRules].map((r) => r.cssText));
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`${rules.join("\n")}
    *, *::before, *::after { transition: none !important; animation: none !important; }
    .sd-try, .sd-panel, .sd-shared, .sd-stage :is(.sd-control, .sd-toggle, input, select, textarea, button:is(:not([class]), .sd-primary, .sd-quiet)) { display: none !important; }
    [data-materialised]::before { content: none !important; } [data-materialised-after]::after { content: none !important; }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

/** What stands before and after elements by style alone becomes elements, which can be measured. */
function materialise(root) {
  for (const element of root.querySelectorAll("*")) {
    if (element.closest("svg")) continue;
    for (const [pseudo, name, place] of [["::before", "materialised", "prepend"], ["::after", "materialisedAfter", "append"]]) {
      const style = getComputedStyle(element, pseudo);
      const text = /^"(.*)"$/.exec(style.content)?.[1];
      if (text === undefined || style.position === "absolute" || style.display === "none") continue;
      const span = document.createElement("span");
      span.textContent = text.replaceAll("\\\"", "\"");
      const names = ["color", "font-size", "font-weight", "margin", "padding", "display", "vertical-align", "border-radius", "background", ...(text ? [] : ["width", "height"])];
      span.style.cssText = names.map((n) => `${n}:${style.getPropertyValue(n)}`).join(";");
      element.dataset[name] = "";
      element[place](span);
    }
  }
}

// --- boxes ------------------------------------------------------------------------------------------

const SIDES = [["Top", 0, 0, 1, 0], ["Right", 1, 0, 1, 1], ["Bottom", 0, 1, 1, 1], ["Left", 0, 0, 0, 1]];
const DASH = { dashed: (w) => `${w * 3} ${w * 2}`, dotted: (w) => `${w} ${w}` };

function drawBox(into, style, { x, y, width, height }) {
  if (!width || !height) return;
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, width / 2, height / 2);
  // A gradient is a hatch here: its first colour stands for it.
  const ground = paint(style.backgroundColor) ?? (style.backgroundImage === "none" ? null : paint(/(?:rgb|color|oklch)[^()]*\([^()]*\)/.exec(style.backgroundImage)?.[0] ?? "transparent"));
  if (ground) into.append(make("rect", { x, y, width, height, rx: radius || null, fill: ground.colour, "fill-opacity": ground.opacity }));
  const sides = SIDES.map(([side]) => ({ w: parseFloat(style[`border${side}Width`]) || 0, kind: style[`border${side}Style`], ink: style[`border${side}Color`] }))
    .map((s) => ({ ...s, paint: s.w && s.kind !== "none" && s.kind !== "hidden" ? paint(s.ink) : null }));
  const [first] = sides;
  if (first.paint && sides.every((s) => s.w === first.w && s.kind === first.kind && s.ink === first.ink)) {
    into.append(make("rect", { x: x + first.w / 2, y: y + first.w / 2, width: width - first.w, height: height - first.w, rx: Math.max(0, radius - first.w / 2) || null, fill: "none",
      stroke: first.paint.colour, "stroke-opacity": first.paint.opacity, "stroke-width": first.w, "stroke-dasharray": DASH[first.kind]?.(first.w) }));
  } else sides.forEach((s, i) => {
    if (!s.paint) return;
    const [, x1, y1, x2, y2] = SIDES[i];
    const dx = i === 1 ? -s.w / 2 : i === 3 ? s.w / 2 : 0, dy = i === 0 ? s.w / 2 : i === 2 ? -s.w / 2 : 0;
    into.append(make("line", { x1: x + x1 * width + dx, y1: y + y1 * height + dy, x2: x + x2 * width + dx, y2: y + y2 * height + dy, stroke: s.paint.colour, "stroke-opacity": s.paint.opacity, "stroke-width": s.w, "stroke-dasharray": DASH[s.kind]?.(s.w) }));
  });
  // A shadow without blur, inside: a ring.
  const [, shade, ring] = /^(.*\)) 0px 0px 0px ([\d.]+)px inset$/.exec(style.boxShadow) ?? [];
  if (ring) {
    const w = Number(ring);
    into.append(make("rect", { x: x + w / 2, y: y + w / 2, width: width - w, height: height - w, rx: radius || null, fill: "none", stroke: paint(shade)?.colour, "stroke-width": w }));
  }
  const line = parseFloat(style.outlineWidth) || 0;
  const ink = line && style.outlineStyle !== "none" ? paint(style.outlineColor) : null;
  if (ink) {
    const off = (parseFloat(style.outlineOffset) || 0) + line / 2;
    into.append(make("rect", { x: x - off, y: y - off, width: width + 2 * off, height: height + 2 * off, rx: radius || null, fill: "none", stroke: ink.colour, "stroke-width": line, "stroke-dasharray": DASH[style.outlineStyle]?.(line) }));
  }
}

// --- text -------------------------------------------------------------------------------------------

/** The font where it is another than the figure's, which stands at the root. */
const familyOf = (style) => (/^system-ui/.test(style.fontFamily) ? null : style.fontFamily);

/** The lines that a text node is broken into: [{ text, rect }]. */
function linesOf(node) {
  const lines = [];
  const range = document.createRange();
  const text = node.data;
  for (let i = 0; i < text.length;) {
    const step = text.codePointAt(i) > 0xffff ? 2 : 1;
    range.setStart(node, i);
    range.setEnd(node, i + step);
    const rect = [...range.getClientRects()].findLast((r) => r.width > 0);
    const glyph = text.slice(i, i + step);
    i += step;
    if (!rect) continue;
    const last = lines.at(-1);
    if (last && Math.abs(last.top - rect.top) < 2 && rect.left >= last.right - 2) {
      last.text += /\s/.test(glyph) ? " " : glyph;
      last.right = rect.right;
    } else lines.push({ text: /\s/.test(glyph) ? " " : glyph, left: rect.left, right: rect.right, top: rect.top, height: rect.height });
  }
  return lines.filter((line) => line.text.trim());
}

function drawText(into, node, style, decorations, at) {
  const ink = paint(style.color);
  if (!ink || style.visibility !== "visible") return;
  pen.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = pen.measureText("x");
  for (const { text, left, right, top, height } of linesOf(node)) {
    const element = make("text", {
      x: left - at.x, y: top - at.y + (height - up - down) / 2 + up, fill: ink.colour, "fill-opacity": ink.opacity, "font-family": familyOf(style), "font-size": style.fontSize, "font-weight": style.fontWeight,
      "font-style": style.fontStyle === "normal" ? null : style.fontStyle,
      // Another program has other fonts: the line keeps its length.
      textLength: right - left, lengthAdjust: "spacingAndGlyphs",
    });
    element.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
    element.textContent = text;
    into.append(element);
    const size = parseFloat(style.fontSize), base = Number(element.getAttribute("y"));
    for (const { lines, colour, kind, thick: asked, offset } of decorations)
      for (const each of lines.split(" ")) {
        const thick = asked || Math.max(1, size / 14);
        const y = base + (each === "line-through" ? -0.28 * size : (offset || 0.1 * size) + thick / 2);
        for (const down of kind === "double" ? [0, 2 * thick] : [0])
          into.append(make("line", { x1: left - at.x, x2: right - at.x, y1: y + down, y2: y + down, stroke: paint(colour)?.colour, "stroke-width": thick, "stroke-dasharray": DASH[kind]?.(thick) }));
      }
  }
}

// --- what is SVG already ------------------------------------------------------------------------------

function copySvg(source, parentStyle) {
  const style = getComputedStyle(source);
  const tag = source.localName;
  const definition = source.closest("defs, pattern, clipPath, mask, marker, linearGradient");
  if (!definition && (style.display === "none" || (style.visibility === "hidden" && !source.children.length))) return null;
  const copy = make(tag);
  for (const { name, value } of source.attributes) if (KEPT.has(name)) copy.setAttribute(name, value);
  const inherited = parentStyle && !["svg", "pattern", "defs"].includes(tag);
  for (const name of tag === "defs" ? [] : DRAWN) {
    let value = style.getPropertyValue(name);
    if (!value || value === "normal" || (inherited && value === parentStyle.getPropertyValue(name) && !["opacity", "clip-path", "mask"].includes(name))) continue;
    if (["none", "auto", "1"].includes(value) && ["opacity", "clip-path", "mask", "text-decoration-line", "dominant-baseline", "fill-opacity", "stroke-opacity"].includes(name)) continue;
    if (name === "font-family") {
      if (tag === "text" && familyOf(style)) copy.setAttribute(name, value);
      continue;
    }
    if (["fill", "stroke", "stop-color"].includes(name) && value !== "none" && !value.startsWith("url(")) {
      const ink = paint(value);
      if (ink?.opacity) copy.setAttribute(name === "stop-color" ? "stop-opacity" : `${name}-opacity`, ink.opacity);
      value = ink?.colour ?? "none";
    }
    copy.setAttribute(name === "text-decoration-line" ? "text-decoration" : name, value.replace(/url\("?[^"#)]*(#[^")]+)"?\)/g, "url($1)"));
  }
  if (style.visibility === "hidden") copy.setAttribute("visibility", "hidden");
  for (const child of source.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE && !["title", "desc", "style", "script"].includes(child.localName)) copy.append(copySvg(child, style) ?? "");
  }
  return copy;
}

function drawSvg(into, svg, rect, at) {
  const copy = copySvg(svg, null);
  if (!copy) return;
  for (const [name, value] of Object.entries({ x: rect.left - at.x, y: rect.top - at.y, width: rect.width, height: rect.height })) copy.setAttribute(name, String(Math.round(value * 100) / 100));
  copy.setAttribute("overflow", getComputedStyle(svg).overflow === "hidden" ? "hidden" : "visible");
  into.append(copy);
}

// --- the walk -----------------------------------------------------------------------------------------

let clips = 0;
function draw(into, node, at, decorations) {
  if (node.nodeType === Node.TEXT_NODE) {
    const host = node.parentElement ?? node.getRootNode().host;
    if (node.data.trim()) drawText(into, node, getComputedStyle(host), decorations, at);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || ["STYLE", "SCRIPT", "TEMPLATE", "DIALOG", "LINK", "IFRAME"].includes(node.tagName) || node.classList.contains("sd-visually-hidden")) return;
  const style = getComputedStyle(node);
  if (style.display === "none" || style.opacity === "0") return;
  const rect = node.getBoundingClientRect();
  const group = Number(style.opacity) < 1 ? into.appendChild(make("g", { opacity: style.opacity })) : into;
  if (node.localName === "svg") { drawSvg(group, node, rect, at); return; }
  if (node.localName === "canvas") {
    if (rect.width && rect.height && style.visibility === "visible") group.append(make("image", { x: rect.left - at.x, y: rect.top - at.y, width: rect.width, height: rect.height, href: node.toDataURL() }));
    return;
  }
  if (style.visibility === "visible")
    for (const box of style.display === "inline" ? node.getClientRects() : [rect]) drawBox(group, style, { x: box.left - at.x, y: box.top - at.y, width: box.width, height: box.height });
  let inside = group;
  if (style.overflowY !== "visible" && (node.scrollHeight > node.clientHeight + 1 || node.scrollWidth > node.clientWidth + 1)) {
    const id = `clip-${++clips}`;
    const clip = make("clipPath", { id });
    clip.append(make("rect", { x: rect.left - at.x, y: rect.top - at.y, width: rect.width, height: rect.height }));
    inside = make("g", { "clip-path": `url(#${id})` });
    group.append(clip, inside);
  }
  const own = style.textDecorationLine === "none" ? [] : [{ lines: style.textDecorationLine, colour: style.textDecorationColor, kind: style.textDecorationStyle, thick: parseFloat(style.textDecorationThickness), offset: parseFloat(style.textUnderlineOffset) }];
  for (const child of (node.shadowRoot ?? node).childNodes)
    if (node.localName !== "details" || node.open || child.localName === "summary") draw(inside, child, at, [...decorations, ...own]);
}

function picture(figure, title, description) {
  const at = figure.getBoundingClientRect();
  const svg = make("svg", { width: Math.round(at.width), height: Math.round(at.height), viewBox: `0 0 ${Math.round(at.width)} ${Math.round(at.height)}`, "font-family": getComputedStyle(figure).fontFamily });
  const name = make("title"), text = make("desc");
  name.textContent = title;
  text.textContent = description;
  svg.append(name, text);
  draw(svg, figure, at, []);
  return new XMLSerializer().serializeToString(svg);
}

/** The same picture in pixels, as base64. */
async function pixels(svg, scale) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(image.width * scale);
  canvas.height = Math.round(image.height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png").split(",")[1];
}

/** All markup below an element, shadow trees included. */
const markup = (root) => root.innerHTML + [...root.querySelectorAll("*")].map((e) => (e.shadowRoot ? markup(e.shadowRoot) : "")).join("");

async function run() {
  const { figure: spec, still: { format, scale, width } } = JSON.parse(document.getElementById("boot").textContent);
  document.body.style.width = `${width}px`; // a browser's window may be no narrower than 500
  await alone();
  const pause = () => new Promise((done) => setTimeout(done, 100));
  const figure = document.querySelector(".sd-figure");
  if (!figure) throw new Error(document.getElementById("figure").textContent);
  asPrinted();
  while (spec.chart && !figure.querySelector("[class^='bk-']")) await pause();
  // Charts are drawn in their own time: done when records are unpacked and several looks find the same.
  for (let same = 0, before = ""; same < 3;) {
    await settled();
    await pause();
    const now = markup(figure);
    same = now === before ? same + 1 : 0;
    before = now;
  }
  materialise(figure);
  const svg = picture(figure, figure.querySelector(".sd-title").textContent, figure.querySelector(".sd-say").textContent);
  return [format, format === "png" ? await pixels(svg, scale) : svg];
}

const [kind, text] = await run().catch((reason) => ["error", String(reason?.message ?? reason)]);
const result = document.createElement("template");
result.id = "still";
result.dataset.kind = kind;
result.content.append(text);
document.body.append(result);
