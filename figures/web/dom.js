// Building DOM without a framework. Text goes in as text nodes only, so a reader's words and a
// trace's tokens can never become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") {
      // Through the object model: a style attribute would be refused by a strict Content-Security-Policy.
      if (typeof value === "string") node.style.cssText = value;
      else for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    } else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked" || name === "htmlFor") node[name] = value;
    else node.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element: h("button", { class: "x", onclick }, "text", child, …). */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element, same call. */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Collects clean-up functions; `scope()` then `add(fn)`, `listen(target, event, fn)`, `end()`. */
export function scope() {
  const endings = [];
  return {
    add(fn) { endings.push(fn); return fn; },
    listen(target, event, fn, options) {
      target.addEventListener(event, fn, options);
      endings.push(() => target.removeEventListener(event, fn, options));
    },
    /** Follow model events and run `fn` once at the start. */
    follow(model, names, fn) {
      for (const name of [names].flat()) {
        const event = name === "*" ? "change" : `change:${name}`;
        model.on(event, fn);
        endings.push(() => model.off(event, fn));
      }
      fn();
    },
    /**
     * Run `fn(width)` soon and whenever the element's width changes. In a frame of its own: what is drawn changes
     * sizes that the browser is just telling, which it reports as an error.
     */
    resize(element, fn) {
      let last = -1, frame = 0;
      const observer = new ResizeObserver((entries) => {
        const width = Math.round(entries.at(-1).contentRect.width);
        cancelAnimationFrame(frame);
        if (width > 0 && width !== last) frame = requestAnimationFrame(() => fn((last = width)));
      });
      observer.observe(element);
      endings.push(() => { observer.disconnect(); cancelAnimationFrame(frame); });
    },
    end() { while (endings.length) endings.pop()(); },
  };
}

const sheets = new Map(); // css → CSSStyleSheet

/**
 * Give the document (or shadow tree) around `element` these rules, once. Not as a <style> element: a strict
 * Content-Security-Policy would refuse it.
 */
export function adoptStyle(element, css) {
  const tree = element.getRootNode();
  if (!sheets.has(css)) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    sheets.set(css, sheet);
  }
  if (!tree.adoptedStyleSheets.includes(sheets.get(css))) tree.adoptedStyleSheets = [...tree.adoptedStyleSheets, sheets.get(css)];
}

let counter = 0;
/** An id that is unique in this page, to tie a label to its control. */
export const uid = (prefix = "sd") => `${prefix}-${++counter}`;

/** One redraw a frame, however many changes ask for it. Returns { request, cancel }. */
export function frameThrottle(fn) {
  let handle = 0;
  return {
    request() { handle ||= requestAnimationFrame(() => { handle = 0; fn(); }); },
    cancel() { cancelAnimationFrame(handle); handle = 0; },
  };
}

/** A colour token such as "--sd-target" as `element` would show it, "#rrggbb" (for canvas and Bokeh). */
export function token(element, name) {
  // Read as text, a token still names both themes; only a used colour is one.
  const probe = h("span", { hidden: true, style: { color: `var(${name})` } });
  element.append(probe);
  const parts = getComputedStyle(probe).color.match(/[\d.]+/g);
  probe.remove();
  return `#${parts.slice(0, 3).map((x) => Math.round(x).toString(16).padStart(2, "0")).join("")}`;
}

/** True while the reader asks for no motion. */
export const stillness = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
