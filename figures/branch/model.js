// The arithmetic of `model.py`, for the browser; a test compares the two over a grid. The timing model and
// the sources of its formulas stand there.

import { rng } from "#sd/rng.js";

export const THRESHOLD = 50;
const VALUES_SEED = 2;
export const PREDICTORS = ["taken", "onebit", "twobit"];

/** How the condition turns out: the pattern over and over. T, t, 1 hold; N, n, 0 do not. */
export function outcomes(pattern, n) {
  const letters = [...pattern].filter((c) => "TtNn10".includes(c)).map((c) => "Tt1".includes(c));
  if (letters.length === 0) letters.push(true);
  return Array.from({ length: n }, (_, i) => letters[i % letters.length]);
}

function valuesOf(conditions) {
  const draw = rng(VALUES_SEED);
  return conditions.map((holds) => Math.floor(draw.uniform() * 50) + (holds ? THRESHOLD : 0));
}

/** A predictor's guesses, and what it remembered before each. */
export function predict(kind, conditions) {
  let memory = { taken: 0, onebit: 1, twobit: 2 }[kind];
  const guesses = [], memories = [];
  for (const holds of conditions) {
    memories.push(memory);
    guesses.push(kind === "taken" || memory >= (kind === "onebit" ? 1 : 2));
    if (kind === "onebit") memory = holds ? 1 : 0;
    else if (kind === "twobit") memory = holds ? Math.min(3, memory + 1) : Math.max(0, memory - 1);
  }
  return [guesses, memories];
}

const missesOf = (kind, conditions) => predict(kind, conditions)[0].filter((guess, i) => guess !== conditions[i]).length;

const step = ([total, skipped], x, branch) => (branch ? [total + x, skipped] : [total, skipped + 1]);

function waiting(values, C, B) {
  const segments = [], commits = [];
  let t = 0, state = [0, 0];
  values.forEach((x, index) => {
    segments.push({ kind: "condition", index, start: t, end: t + C, fate: "" });
    segments.push({ kind: "body", index, start: t + C, end: t + C + B, fate: "" });
    t += C + B;
    state = step(state, x, x >= THRESHOLD);
    commits.push({ time: t, total: state[0], skipped: state[1] });
  });
  return { segments, end: t, commits, emitted: [] };
}

// The guessed branch runs on a copy that counts only when the condition agrees, as in such a machine.
function guessing(values, guesses, C, B, R) {
  const segments = [], commits = [];
  let t = 0, state = [0, 0];
  values.forEach((x, index) => {
    const ahead = step(state, x, guesses[index]);
    const known = t + C;
    const holds = x >= THRESHOLD;
    const add = (kind, start, end) => segments.push({ kind, index, start, end, fate: "" });
    add("condition", t, known);
    if (guesses[index] === holds) {
      add("ahead", t, t + B);
      t = Math.max(known, t + B);
      state = ahead;
    } else {
      add("wasted", t, Math.min(known, t + B));
      if (R > 0) add("rollback", known, known + R);
      add("redo", known + R, known + R + B);
      t = known + R + B;
      state = step(state, x, holds);
    }
    commits.push({ time: t, total: state[0], skipped: state[1] });
  });
  return { segments, end: t, commits, emitted: [] };
}

function alone(n, C) {
  const each = Array.from({ length: n }, (_, i) => i);
  return {
    segments: each.map((index) => ({ kind: "pass", index, start: index * C, end: (index + 1) * C, fate: "" })),
    end: n * C,
    commits: [],
    emitted: each.map((index) => ({ index, time: (index + 1) * C, origin: "target" })),
  };
}

function together(right, C, m, c) {
  const segments = [], emitted = [];
  let t = 0, at = 0;
  while (at < right.length) {
    const drafted = Math.min(m, right.length - at - 1);
    let kept = 0;
    while (kept < drafted && right[at + kept]) kept++;
    for (let j = 0; j < drafted; j++) {
      const fate = j < kept ? "accepted" : j === kept ? "rejected" : "dropped";
      segments.push({ kind: "draft", index: at + j, start: t, end: t + c * C, fate });
      t += c * C;
    }
    segments.push({ kind: "pass", index: at, start: t, end: t + C, fate: "" });
    t += C;
    for (let j = 0; j < kept; j++) emitted.push({ index: at + j, time: t, origin: "accepted" });
    emitted.push({ index: at + kept, time: t, origin: drafted === 0 ? "target" : kept === drafted ? "bonus" : "supplied" });
    at += kept + 1;
  }
  return { segments, end: t, commits: [], emitted };
}

/** Everything that the figure shows. The names are those of the figure's parameters. */
export function scene({ n, pattern, mode, wrong, accuracy, seed, condition: C, body: B, rollback: R, m, c }) {
  const conditions = outcomes(pattern, n);
  const values = valuesOf(conditions);
  let guesses, memory = [];
  if (mode === "hand") guesses = conditions.map((holds, i) => holds !== Boolean((wrong >> i) & 1));
  else if (mode === "draw") {
    const draw = rng(seed);
    guesses = conditions.map((holds) => holds === (draw.uniform() < accuracy));
  } else [guesses, memory] = predict(mode, conditions);
  const right = guesses.map((guess, i) => guess === conditions[i]);
  return {
    outcomes: conditions, values, guesses, right, memory,
    misses: Object.fromEntries(PREDICTORS.map((kind) => [kind, missesOf(kind, conditions)])),
    without: waiting(values, C, B),
    guessing: guessing(values, guesses, C, B, R),
    breakeven: R / (R + Math.min(C, B)),
    alone: alone(n, C),
    together: together(right, C, m, c),
  };
}

/** The variables that are certain at time t. */
export const certain = (lane, t) => lane.commits.findLast((x) => x.time <= t + 1e-9) ?? { time: 0, total: 0, skipped: 0 };
