// The numbers of a run as rows of text, as `figure.py` writes them.

import { duration, fixed, num, times } from "#sd/format.js";
import { LANES, counts, ladder, number } from "./model.js";

const NONE = "–";
const SPECULATIVE = ["drafted", "accepted", "rejected", "supplied", "bonus"];

export function statistics(run, t, lang) {
  const whole = (x) => num(x, lang, 6), plain = (x) => num(x, lang, 3), seconds = (x) => duration(x, lang);
  const head = [t("table.quantity"), ...LANES.map((name) => t(`lane.${name}`))];
  const stats = run.end?.stats ?? soFar(run);
  const cell = (form, ...names) => { const x = number(stats, ...names); return x === null ? NONE : form(x); };
  const pair = (name, form) => [t(`table.${name}`), ...LANES.map((lane) => cell(form, lane, name))];
  const [alpha, low, high] = ["alpha", "low", "high"].map((name) => number(stats, "acceptance", name));
  return [
    head,
    pair("tokens", whole), pair("clock_s", seconds), pair("first_token_s", seconds), pair("tokens_per_s", plain),
    pair("target_passes", whole), pair("overhead_s", seconds),
    ...SPECULATIVE.map((name) => [t(`table.${name}`), "", cell(whole, "speculative", name)]),
    [t("table.alpha"), "", [alpha, low, high].includes(null) ? NONE : `${fixed(alpha, 2, lang)} (${fixed(low, 2, lang)}–${fixed(high, 2, lang)})`],
    ...["m", "c", "v", "tokens_per_pass"].map((name) => [t(`table.${name}`), "", cell(plain, name)]),
    ...(ladder(stats) ?? []).filter(([name]) => name !== "tokens").map(([name, x]) => [t(`table.${name}`), "", times(x, lang)]),
  ];
}

/** What can be told of a run without its end. */
function soFar(run) {
  return Object.fromEntries(LANES.map((name) => {
    const c = counts(run.lanes[name], Infinity);
    return [name, { ...c, clock_s: c.clock, tokens_per_s: c.rate }];
  }));
}
