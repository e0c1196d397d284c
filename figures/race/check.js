// Judges a trace that came from somewhere: the rules of docs/trace.md, the same as kernels/trace_check.py (a
// test throws the same broken files at both). `check` returns null, or { where, why } with `why` a key
// of the figure's words. Texts stay texts: views set them as text nodes only.

import { LANES, SCHEMA, expand } from "./model.js";

export const MAX_BYTES = 2_000_000;
const MAX_EVENTS = 40_000, MAX_TEXT = 400, MAX_PROMPT = 40_000, MAX_SECONDS = 100_000, MAX_TOKENS = 64;
const KINDS = ["prefill", "decode", "draft", "verify"];
const REASONS = ["end", "stop", "length", "context", "cancelled"];
const AGREEMENTS = ["identical", "differs", "sampled", "unfinished"];
const DRAFTERS = ["model", "lookup"];
const IMPLIED = { prefill: ["target"], decode: ["target"], draft: ["drafted"], verify: ["accepted", "rejected", "supplied", "bonus"] };
const INFERRED = { ...IMPLIED, verify: ["accepted", "target"] }; // seen from outside: docs/trace.md
const SOURCE_VERSION = 1;

class Bad extends Error {
  constructor(where, why) { super(`${where}: ${why}`); this.where = where; this.why = why; }
}

/** Parse a file's text; returns { trace } or { error: { where, why } }. Look at the size before reading. */
export function read(text) {
  try { return take(JSON.parse(text)); } catch { return { error: { where: "", why: "json" } }; }
}

/** The same for what is parsed already. */
export function take(value) {
  const error = check(value);
  return error ? { error } : { trace: { header: value.header, events: value.events.map(expand) } };
}

export function check(value) {
  try {
    object(value, "file", ["schema", "header", "events"]);
    if (value.schema !== SCHEMA) throw new Bad("schema", "schema");
    header(value.header);
    if (!Array.isArray(value.events) || value.events.length > MAX_EVENTS) throw new Bad("events", "events");
    const state = { clocks: { plain: 0, speculative: 0 }, finished: new Set(), inferred: "source" in value.header };
    value.events.forEach((raw, i) => event(unpack(raw), `events[${i}]`, state, i === value.events.length - 1));
    const last = value.events.at(-1);
    if (!last || last.type !== "end") throw new Bad("events", "unclosed");
    return null;
  } catch (problem) {
    if (problem instanceof Bad) return { where: problem.where, why: problem.why };
    return { where: "file", why: "shape" };
  }
}

/** Arrays that have not the shape of a pass are left for `event` to refuse. */
function unpack(row) {
  const fits = Array.isArray(row) && row.length === 7 && Number.isInteger(row[0]) && row[0] >= 0 && row[0] < LANES.length
    && typeof row[1] === "string" && Number.isInteger(row[2]) && Number.isInteger(row[3])
    && Array.isArray(row[6]) && row[6].every((x) => Array.isArray(x) && x.length >= 2 && x.length <= 7);
  return fits ? expand(row) : row;
}

function header(value) {
  object(value, "header", ["created", "command", "device", "versions", "pair", "settings", "prompt_tokens", "guarantee"], ["source"]);
  for (const name of ["created", "command", "guarantee"]) text(value[name], `header.${name}`, MAX_PROMPT);
  number(value.prompt_tokens, "header.prompt_tokens", 0, 10_000_000, true);
  for (const name of ["device", "versions", "pair", "settings"]) {
    object(value[name], `header.${name}`);
    plain(value[name], `header.${name}`, MAX_PROMPT);
  }
  text(value.device.name, "header.device.name");
  for (const name of ["name", "target"]) text(value.pair[name], `header.pair.${name}`);
  text(value.settings.prompt, "header.settings.prompt", MAX_PROMPT);
  if (value.settings.m !== "adaptive") number(value.settings.m, "header.settings.m", 1, 16, true);
  number(value.settings.temperature, "header.settings.temperature", 0, 5);
  if ("source" in value) source(value.source);
}

function source(value) {
  object(value, "header.source", ["version", "server", "passes", "lanes", "m"]);
  if (value.version !== SOURCE_VERSION) throw new Bad("header.source.version", "value");
  text(value.server, "header.source.server");
  oneOf(value.passes, ["inferred"], "header.source.passes");
  oneOf(value.lanes, ["in turn", "together"], "header.source.lanes");
  if (value.m !== null) number(value.m, "header.source.m", 1, 1000, true);
}

function event(e, where, state, last) {
  object(e, where);
  if (e.type === "pass") pass(e, where, state);
  else if (e.type === "finish") {
    object(e, where, ["type", "lane", "reason", "clock"]);
    oneOf(e.lane, LANES, `${where}.lane`);
    oneOf(e.reason, REASONS, `${where}.reason`);
    number(e.clock, `${where}.clock`, state.clocks[e.lane] - 1e-6, MAX_SECONDS);
    if (state.finished.has(e.lane)) throw new Bad(where, "order");
    state.finished.add(e.lane);
  } else if (e.type === "end") {
    object(e, where, ["type", "agreement", "stats"]);
    object(e.agreement, `${where}.agreement`);
    oneOf(e.agreement.kind, AGREEMENTS, `${where}.agreement.kind`);
    plain(e.agreement, `${where}.agreement`, MAX_TEXT);
    object(e.stats, `${where}.stats`);
    plain(e.stats, `${where}.stats`, MAX_TEXT);
    if (!last) throw new Bad(where, "order");
  } else throw new Bad(`${where}.type`, "value");
}

function pass(e, where, { clocks, finished, inferred }) {
  object(e, where, ["type", "lane", "kind", "start", "end", "rows", "tokens"], ["by"]);
  oneOf(e.lane, LANES, `${where}.lane`);
  oneOf(e.kind, KINDS, `${where}.kind`);
  if (finished.has(e.lane)) throw new Bad(where, "order");
  number(e.start, `${where}.start`, clocks[e.lane] - 1e-6, MAX_SECONDS);
  number(e.end, `${where}.end`, e.start, MAX_SECONDS);
  clocks[e.lane] = e.end;
  number(e.rows, `${where}.rows`, 0, 10_000_000, true);
  if ("by" in e) oneOf(e.by, DRAFTERS, `${where}.by`);
  else if (e.kind === "draft") throw new Bad(where, "value");
  if (e.lane === "plain" && (e.kind === "draft" || e.kind === "verify")) throw new Bad(where, "value");
  if (!Array.isArray(e.tokens) || e.tokens.length > MAX_TOKENS) throw new Bad(`${where}.tokens`, "shape");
  if (e.kind === "decode" && e.tokens.length === 0) throw new Bad(`${where}.tokens`, "shape");
  e.tokens.forEach((x, i) => token(x, `${where}.tokens[${i}]`, (inferred ? INFERRED : IMPLIED)[e.kind]));
  if (e.kind === "verify" && !(inferred ? /^a*t$/ : /^a*(b|rs)?$/).test(e.tokens.map((x) => x.origin[0]).join(""))) throw new Bad(`${where}.tokens`, "order");
}

function token(value, where, origins) {
  object(value, where, ["id", "text", "origin"], ["p", "q", "u", "by"]);
  number(value.id, `${where}.id`, 0, 2 ** 31, true);
  text(value.text, `${where}.text`);
  oneOf(value.origin, origins, `${where}.origin`);
  for (const name of ["p", "q", "u"]) if (name in value) number(value[name], `${where}.${name}`, 0, 1);
  if ("by" in value) oneOf(value.by, DRAFTERS, `${where}.by`);
}

// --- kinds of value --------------------------------------------------------------------------------

function object(value, where, required = null, optional = []) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Bad(where, "shape");
  if (!required) return;
  for (const name of required) if (!Object.hasOwn(value, name)) throw new Bad(`${where}.${name}`, "missing");
  for (const name of Object.keys(value)) if (!required.includes(name) && !optional.includes(name)) throw new Bad(`${where}.${name.slice(0, 40)}`, "unknown");
}
function text(value, where, longest = MAX_TEXT) {
  if (typeof value !== "string" || [...value].length > longest) throw new Bad(where, "value");
}
function number(value, where, low, high, whole = false) {
  if (typeof value !== "number" || (whole && !Number.isInteger(value)) || !(value >= low && value <= high)) throw new Bad(where, "value");
}
function oneOf(value, allowed, where) {
  if (typeof value !== "string" || !allowed.includes(value)) throw new Bad(where, "value");
}
/** Bounded JSON: at most 5 levels, 100 entries a level. */
function plain(value, where, longest, depth = 0) {
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (depth > 4 || entries.length > 100) throw new Bad(where, "shape");
    for (const [key, item] of entries) { text(key, where, 100); plain(item, `${where}.${key}`, longest, depth + 1); }
  } else if (typeof value === "string") text(value, where, longest);
  else if (typeof value === "number") number(value, where, -1e18, 1e18);
}
