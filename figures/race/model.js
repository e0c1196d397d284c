// What a race has come to at a time t, and the sentence that says so: `model.py` in the browser. A run
// grows event by event, so that a recording and a live race are one thing here. Times are seconds on the lanes' clocks.

import { duration, num, times } from "#sd/format.js";

export const LANES = ["plain", "speculative"];
export const EMITTED = new Set(["target", "accepted", "supplied", "bonus"]);
const IMPLIED = { prefill: "target", decode: "target", draft: "drafted" };
const SAME = 1e-9; // two clocks this close are at the same moment
const OPENING = 0.35; // share of a run that is behind when the figure opens
const QUOTE = 24; // characters of text quoted in a sentence
const NONE = "–";

/** A pass as files hold it (an array, docs/trace.md) → the object that travels live. */
export function expand(e) {
  if (!Array.isArray(e)) return e;
  const [lane, kind, start, end, rows, by, tokens] = e;
  return {
    type: "pass", lane: LANES[lane], kind, start: start / 1e6, end: end / 1e6, rows, ...(by && { by }),
    tokens: tokens.map(([id, text, origin, p, q, u, drafter]) => ({
      id, text, origin: origin ?? IMPLIED[kind],
      ...(p != null && { p }), ...(q != null && { q }), ...(u != null && { u }), ...(drafter && { by: drafter }),
    })),
  };
}

/** The other direction: what a saved file holds. */
export function compact(e) {
  if (e.type !== "pass") return e;
  const micro = (x) => Math.round(x * 1e6);
  const tokens = e.tokens.map((x) => {
    const row = [x.id, x.text, x.origin === IMPLIED[e.kind] ? null : x.origin, x.p ?? null, x.q ?? null, x.u ?? null, x.by ?? null];
    while (row.at(-1) === null) row.pop();
    return row;
  });
  return [LANES.indexOf(e.lane), e.kind, micro(e.start), micro(e.end), e.rows, e.by ?? null, tokens];
}

/** An empty run; `add` takes the events one after another, in order. */
export function createRun() {
  const lane = (name) => ({ name, passes: [], finish: null, reason: null });
  const run = {
    header: null, end: null, events: [],
    /** Whether its passes were not measured but inferred from outside (docs/trace.md, `source`). */
    get inferred() { return Boolean(run.header?.source); },
    lanes: { plain: lane("plain"), speculative: lane("speculative") },
    add(raw) {
      if (raw.type === "start") { run.header = raw.header; return; }
      const e = expand(raw);
      run.events.push(e);
      if (e.type === "pass") addPass(run.lanes[e.lane], run.inferred ? { ...e, inferred: true } : e);
      else if (e.type === "finish") Object.assign(run.lanes[e.lane], { finish: e.clock, reason: e.reason });
      else if (e.type === "end") run.end = e;
    },
    /** When the slower lane is done; of a race that is going on, how far it has come. */
    get duration() {
      return Math.max(0, ...LANES.map((name) => Math.max(run.lanes[name].finish ?? 0, run.lanes[name].passes.at(-1)?.end ?? 0)));
    },
  };
  return run;
}

const ZERO = { tokens: 0, rounds: 0, target_passes: 0, draft_passes: 0, drafted: 0, accepted: 0, rejected: 0, supplied: 0, bonus: 0, decode_from: 0 };

/** Keep the pass with its place, its round and the running totals after it. */
function addPass(lane, e) {
  const before = lane.passes.at(-1);
  const total = { ...(before?.total ?? ZERO) };
  for (const { origin } of e.tokens) {
    if (EMITTED.has(origin)) total.tokens++;
    if (origin in total) total[origin]++;
  }
  const target = e.kind === "verify" || e.kind === "decode";
  const read = e.kind === "prefill" && !e.by;
  total.rounds += target;
  // One prefill, however many passes it takes.
  total.target_passes += target || (read && !lane.passes.some((x) => x.kind === "prefill" && !x.by));
  total.draft_passes += e.kind === "draft";
  if (e.kind === "prefill") total.decode_from = e.end;
  const round = e.kind === "prefill" ? 0 : before && (before.kind === "draft") ? before.round : (before?.round ?? 0) + 1;
  lane.passes.push({ ...e, index: lane.passes.length, round, total });
}

/** A whole run from a checked trace. */
export function runOf(trace) {
  const run = createRun();
  run.add({ type: "start", header: trace.header });
  for (const event of trace.events) run.add(event);
  return run;
}

/** How many passes of a lane have ended by t. */
export function done(lane, t) {
  let lo = 0, hi = lane.passes.length;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (lane.passes[middle].end <= t + SAME) lo = middle + 1; else hi = middle;
  }
  return lo;
}

/** What a lane has done by t: totals, its clock, tokens a second. */
export function counts(lane, t) {
  const n = done(lane, t);
  const total = n ? lane.passes[n - 1].total : ZERO;
  const finished = lane.finish !== null && t + SAME >= lane.finish;
  const clock = finished ? lane.finish : n ? lane.passes[n - 1].end : 0;
  const seconds = clock - total.decode_from;
  return { ...total, clock, finished, rate: total.tokens > 1 && seconds > 0 ? (total.tokens - 1) / seconds : null };
}

/** The times that stepping stops at: see model.py. */
export function moments(run) {
  const ends = (lane) => lane.passes.map((x) => x.end);
  const speculative = ends(run.lanes.speculative);
  const last = speculative.at(-1) ?? 0;
  const stops = [0, ...speculative, ...ends(run.lanes.plain).filter((x) => x > last + SAME), run.duration];
  return stops.filter((x, i) => i === 0 || x > stops[i - 1] + SAME);
}

/** The neighbouring stop. */
export function neighbour(run, t, direction) {
  const stops = moments(run);
  return direction > 0 ? stops.find((x) => x > t + SAME) ?? run.duration : stops.findLast((x) => x < t - SAME) ?? 0;
}

/** The time that the figure opens at: after some rounds, marks to see but no result yet. */
export function opening(run) {
  const rounds = run.lanes.speculative.passes.filter((x) => x.kind === "verify").map((x) => x.end);
  return rounds.findLast((x) => x <= OPENING * run.duration) ?? rounds[0] ?? 0;
}

/** The 95 % interval of a rate (Wilson 1927). */
export function wilson(kept, judged) {
  if (judged === 0) return [0, 1];
  const z = 1.96, rate = kept / judged;
  const middle = rate + (z * z) / (2 * judged);
  const spread = z * Math.sqrt((rate * (1 - rate)) / judged + (z * z) / (4 * judged * judged));
  const scale = 1 + (z * z) / judged;
  return [Math.max(0, (middle - spread) / scale), Math.min(1, (middle + spread) / scale)];
}

/** One number of the statistics, or null: a short run has none, a foreign file anything. */
export function number(stats, ...names) {
  let value = stats;
  for (const name of names) value = value !== null && typeof value === "object" && Object.hasOwn(value, name) ? value[name] : null;
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** Tokens a round, (1 − α^(m+1)) / (1 − α). */
export const expectedTokens = (alpha, m) => (alpha >= 1 ? m + 1 : (1 - alpha ** (m + 1)) / (1 - alpha));

/** From the formula's tokens a round to the measured speed-up, one cost at a time: see model.py. */
export function ladder(stats) {
  const alpha = number(stats, "acceptance", "alpha"), m = number(stats, "m");
  const ideal = number(stats, "speedup", "ideal"), formula = number(stats, "speedup", "formula");
  const guesses = number(stats, "speedup", "factors", "guesses");
  const variation = number(stats, "speedup", "factors", "variation");
  const measured = number(stats, "speedup", "measured");
  if ([alpha, m, ideal, formula, guesses, variation, measured].includes(null)) return null;
  return [["tokens", expectedTokens(alpha, m)], ["drafting", ideal], ["formula", formula],
    ["guesses", formula * guesses], ["variation", formula * guesses * variation], ["measured", measured]];
}

/** Index of the option of the bet that a measured speed-up makes right. */
export const bet = (measured) => [1, 1.3, 2].filter((edge) => measured >= edge).length;

// --- sentences -------------------------------------------------------------------------------------

const visible = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
const trim = (text) => text.replace(/^ +| +$/g, "");

/** A token's text as a sentence quotes it: line ends and blanks visible, never empty. */
export function shown(token) {
  const text = visible(String(token?.text ?? ""));
  return trim(text) || "␣".repeat([...text].length) || `#${token?.id ?? 0}`;
}

/** Several tokens' text as a sentence quotes it. */
export function quote(tokens) {
  const text = [...trim(visible(tokens.map((x) => x.text).join("")))];
  return (text.length <= QUOTE ? text.join("") : `${text.slice(0, QUOTE).join("")}…`) || "␣";
}

/** The sentence about one pass: its key below `pass.` and what fills its places. */
export function about(item, lang) {
  const { tokens, rows } = item;
  const n = (x, digits = 6) => num(x, lang, digits);
  const maybe = (x) => (x == null ? NONE : n(x, x < 0.001 ? 1 : 2));
  const values = { ms: duration(item.end - item.start, lang), rows: n(rows) };
  if (item.inferred) return inferred(item, { ...values, n: n(tokens.length) });
  if (item.kind === "prefill")
    return item.by ? ["prefill_draft", values] : ["prefill", { ...values, ...(tokens.length && { token: shown(tokens[0]) }) }];
  if (item.kind === "decode") return [item.lane === "speculative" ? "decode" : "plain", { ...values, token: shown(tokens[0]) }];
  if (item.kind === "draft") {
    const guess = { ...values, token: quote(tokens), n: n(tokens.length) };
    return item.by === "lookup" ? ["lookup", guess] : ["draft", { ...guess, q: maybe(tokens[0]?.q) }];
  }
  const kept = tokens.filter((x) => x.origin === "accepted").length;
  Object.assign(values, { m: n(rows - 1), n: n(kept) });
  const refused = tokens.find((x) => x.origin === "rejected");
  if (!refused)
    return tokens.at(-1)?.origin === "bonus" ? ["bonus", { ...values, token: shown(tokens.at(-1)) }] : ["ended", values];
  const { p, q, u } = refused;
  Object.assign(values, { i: n(kept + 1), guess: shown(refused), token: shown(tokens.at(-1)), p: maybe(p), q: maybe(q) });
  if (u == null || p == null || !q) return ["refused", { ...values, best: maybe(tokens.at(-1).p) }];
  return ["rejected", { ...values, u: maybe(u), ratio: maybe(p / q) }];
}

/** The sentence about a pass that nobody has measured: what arrived, and when. */
function inferred(item, values) {
  const key = item.kind === "prefill" ? "arrived_first" : item.tokens.length > 1 ? "arrived" : "arrived_one";
  return [key, { ...values, token: shown(item.tokens.at(-1)) }];
}

/** The sentences that say where the race stands at t: [key, values] each. */
export function moment(run, t, lang) {
  if (run.end && t + SAME >= run.duration) return result(run, lang);
  const n = (x) => num(x, lang, 6);
  const { plain, speculative } = run.lanes;
  const passes = done(speculative, t);
  const rows = run.header?.prompt_tokens ?? 0;
  if (passes === 0 && done(plain, t) === 0) return rows || !run.inferred ? [["say.start", { rows: n(rows) }]] : [["say.start_unseen", {}]];
  const standing = { t: duration(t, lang), plain: n(counts(plain, t).tokens), speculative: n(counts(speculative, t).tokens) };
  if (passes === speculative.passes.length && speculative.finish !== null) return [["say.waiting", standing]];
  if (passes === 0) return [["say.standing", standing]];
  const [key, values] = about(speculative.passes[passes - 1], lang);
  return [["say.standing", standing], [`pass.${key}`, values]];
}

/** The sentences that close a race: what it came to, and whether the texts agree. */
export function result(run, lang) {
  const { stats, agreement } = run.end;
  const sentences = [];
  const measured = number(stats, "speedup", "measured"), tokens = number(stats, "tokens_per_pass");
  if (agreement.kind !== "unfinished" && measured && tokens)
    sentences.push([measured >= 1 ? "say.won" : "say.lost", { speedup: times(measured, lang), tokens: num(tokens, lang), cost: num(tokens / measured, lang) }]);
  const side = (name) => agreement[name] ?? {};
  const values = agreement.kind !== "differs" ? {} : {
    position: num((number(agreement, "position") ?? 0) + 1, lang, 6),
    plain: shown(side("plain")), speculative: shown(side("speculative")),
    plain_logit: num(number(agreement, "plain", "logit") ?? 0, lang, 6),
    speculative_logit: num(number(agreement, "speculative", "logit") ?? 0, lang, 6),
    gap: num(number(agreement, "gap") ?? 0, lang, 3),
  };
  const { source } = run.header;
  if (!source) return [...sentences, [`say.${agreement.kind}`, values]];
  const unseen = { differs: "differs_unseen", identical: agreement.by === "text" ? "identical_text" : "identical" };
  const count = serverCount(run, lang);
  return [...sentences, [`say.${unseen[agreement.kind] ?? agreement.kind}`, values], ...(count ? [["say.counted", count]] : []), ["say.inferred", { server: source.server }]];
}

/** What the server itself counted of its guesses, as words' values; null where it told nothing. */
export function serverCount(run, lang) {
  const stats = run.end?.stats ?? {};
  const drafted = number(stats, "server", "counts", "drafted"), accepted = number(stats, "server", "counts", "accepted");
  if (drafted === null || accepted === null) return null;
  return { drafted: num(drafted, lang, 6), accepted: num(accepted, lang, 6), rate: drafted ? num(accepted / drafted, lang, 3) : NONE };
}

/** Where two lanes' tokens part, seen from the page: an index, or -1 while they agree as far as both go. */
export function parting(run) {
  const ids = (lane) => lane.passes.flatMap((x) => x.tokens.filter((y) => EMITTED.has(y.origin)).map((y) => y.id));
  const a = ids(run.lanes.plain), b = ids(run.lanes.speculative);
  // A server that tells no ids leaves zeros.
  const known = (x) => !run.inferred || x > 0;
  return a.findIndex((x, i) => i < b.length && x !== b[i] && known(x) && known(b[i]));
}

// --- files -----------------------------------------------------------------------------------------

export const SCHEMA = "speculative-decoding-live/trace/1";

/** The text of a trace file, one event a line, as `Trace.dumps` in kernels/trace.py writes it. */
export const fileOf = (run) =>
  `{"schema":${JSON.stringify(SCHEMA)},\n"header":${JSON.stringify(run.header)},\n"events":[\n${run.events.map((e) => JSON.stringify(compact(e))).join(",\n")}\n]}\n`;

/** The run in Chrome's trace format, for ui.perfetto.dev: one track a lane and model. */
export function chromeTrace(run) {
  const tracks = [["plain", "target"], ["speculative", "target"], ["speculative", "draft"]];
  const rows = [{ name: "process_name", ph: "M", pid: 1, args: { name: run.header.pair.name } },
    ...tracks.map(([lane, model], i) => ({ name: "thread_name", ph: "M", pid: 1, tid: i + 1, args: { name: `${lane}: ${model}` } }))];
  for (const e of run.events.filter((x) => x.type === "pass")) {
    const track = tracks.findIndex(([lane, model]) => lane === e.lane && model === (e.by ? "draft" : "target"));
    rows.push({ name: e.kind, cat: e.lane, ph: "X", ts: Math.round(e.start * 1e6), dur: Math.round((e.end - e.start) * 1e6), pid: 1, tid: track + 1,
      args: { rows: e.rows, text: e.tokens.map((x) => x.text).join(""), tokens: e.tokens } });
  }
  return { traceEvents: rows, displayTimeUnit: "ms", otherData: { schema: SCHEMA, created: run.header.created } };
}
