// Numbers and units as a reader of the language expects them. `text.py` does the same for the server's
// side of each figure, and a test compares the two.

const cache = new Map();
function formatter(lang, options) {
  const key = lang + JSON.stringify(options);
  if (!cache.has(key)) cache.set(key, new Intl.NumberFormat(lang === "zh" ? "zh-CN" : "en-US", options));
  return cache.get(key);
}

/** `digits` significant digits, thousands separated, no exponent: 0.1415, 41.8, 1,840. */
export function num(value, lang = "en", digits = 3) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "–";
  if (value !== 0 && Math.abs(value) >= 10 ** digits)
    return formatter(lang, { maximumFractionDigits: 0 }).format(Math.round(value)).replace("-", "−");
  return formatter(lang, { maximumSignificantDigits: digits }).format(value).replace("-", "−");
}

/** A fixed number of decimals. */
export const fixed = (value, decimals = 2, lang = "en") =>
  Number.isFinite(value)
    ? formatter(lang, { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).format(value).replace("-", "−")
    : "–";

/** A duration given in seconds: "42 ms", "1.3 s", "0.14 ms", "12 µs". */
export function duration(seconds, lang = "en", digits = 3) {
  const a = Math.abs(seconds);
  if (a === 0) return "0 ms";
  if (a < 99.95e-6) return `${num(seconds * 1e6, lang, digits)} µs`;
  if (a < 0.99995) return `${num(seconds * 1e3, lang, digits)} ms`;
  return `${num(seconds, lang, digits)} s`;
}

const STEPS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
/** SI prefix: si(140e9, "B") → "140 GB"; si(989e12, "FLOP/s") → "989 TFLOP/s". */
export function si(value, unit, lang = "en", digits = 3) {
  for (const [size, prefix] of STEPS)
    if (Math.abs(value) >= size) return `${num(value / size, lang, digits)} ${prefix}${unit}`;
  return `${num(value, lang, digits)} ${unit}`;
}

export const percent = (value, lang = "en", decimals = 0) =>
  formatter(lang, { style: "percent", minimumFractionDigits: decimals, maximumFractionDigits: decimals }).format(value).replace("-", "−");

/** "2.31×" */
export const times = (value, lang = "en") => `${fixed(value, 2, lang)}×`;

/** Fill the named places of a template: fill("k = {k}", { k: 5 }). An unknown place stays visible. */
export const fillTemplate = (template, values = {}) =>
  template.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
