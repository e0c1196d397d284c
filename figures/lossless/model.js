// The arithmetic of `model.py`, for the browser; a test compares the two, draw for draw. Rules, formulas and the
// band are described there. `createSampler` and what it is given run in a Web Worker too: they use nothing
// from outside themselves.

import { acceptance, cumulative, distance, kept, pick, residual } from "#sd/distribution.js";
import { rng } from "#sd/rng.js";

export const RULES = ["exact", "always", "equal", "again", "greedy"];
export const DRAWS = 1_000_000;
export const CHECKPOINTS = [...new Set(Array.from({ length: 41 }, (_, i) => Math.floor(10 ** ((i + 8) / 8) + 0.5)))].sort((a, b) => a - b);
const FEWEST = 5;

const likeliest = (q) => q.reduce((best, x, i) => (x > q[best] ? i : best), 0);

export function limit(rule, p, q) {
  if (rule === "exact") return [...p];
  if (rule === "always" || rule === "equal") return [...q];
  if (rule === "again") {
    const alpha = acceptance(p, q);
    return kept(p, q).map((common, i) => common + (1 - alpha) * p[i]);
  }
  const x = likeliest(q), stays = Math.min(1, p[x] / q[x]);
  return residual(p, q).map((r, i) => (1 - stays) * r + (i === x ? stays : 0));
}

export const bias = (rule, p, q) => distance(limit(rule, p, q), p);

/** A job for the sampler: all that it needs, as plain numbers. */
export const jobOf = (p, q, seed) => ({ p, q, rest: residual(p, q), top: likeliest(q), seed });

/** Draws of all rules. tools: { rng, cumulative, pick }. Returns { n, counts, run(to) }. */
export function createSampler(tools, { p, q, rest, top, seed }) {
  const draw = tools.rng(seed);
  const ofP = tools.cumulative(p), ofQ = tools.cumulative(q), ofR = tools.cumulative(rest);
  const zeros = () => Array(p.length).fill(0);
  const counts = { exact: zeros(), always: zeros(), equal: zeros(), again: zeros(), greedy: zeros() };
  const sampler = {
    n: 0, counts,
    run(to) {
      for (; sampler.n < to; sampler.n++) {
        const first = draw.uniform(), second = draw.uniform(), third = draw.uniform();
        const x = tools.pick(ofQ, first), own = tools.pick(ofP, third), other = tools.pick(ofR, third);
        const stays = second * q[x] < p[x];
        counts.exact[stays ? x : other]++;
        counts.always[x]++;
        counts.equal[own === x ? own : x]++;
        counts.again[stays ? x : own]++;
        counts.greedy[second * q[top] < p[top] ? top : other]++;
      }
    },
  };
  return sampler;
}

export const tools = { rng, cumulative, pick };

/** Distance and Pearson's χ² of counts against p: { distance, chi2, degrees, pvalue }. */
export function fit(counts, p) {
  const n = counts.reduce((a, b) => a + b, 0);
  if (n === 0) return { distance: 0, chi2: 0, degrees: 0, pvalue: null };
  const away = distance(counts.map((c) => c / n), p);
  if (counts.some((c, i) => c > 0 && p[i] <= 0)) return { distance: away, chi2: Infinity, degrees: 0, pvalue: 0 };
  const cells = counts.map((c, i) => [n * p[i], c]).filter(([e]) => e > 0).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const rare = cells.filter(([e]) => e < FEWEST), usual = cells.filter(([e]) => e >= FEWEST);
  if (rare.length) {
    const pooled = rare.reduce((sum, [e, c]) => [sum[0] + e, sum[1] + c], [0, 0]);
    if (pooled[0] >= FEWEST || !usual.length) usual.push(pooled);
    else usual[0] = [usual[0][0] + pooled[0], usual[0][1] + pooled[1]];
  }
  const degrees = usual.length - 1;
  const chi2 = usual.reduce((sum, [e, c]) => sum + (c - e) ** 2 / e, 0);
  return { distance: away, chi2, degrees, pvalue: degrees ? survival(chi2, degrees) : null };
}

/** P(χ² > x) for a whole number of degrees of freedom. */
export function survival(x, degrees) {
  const y = x / 2;
  if (y <= 0) return 1;
  if (degrees % 2 === 0) {
    let term = 1, total = 1;
    for (let j = 1; j < degrees / 2; j++) total += (term *= y / j);
    return Math.min(1, Math.exp(-y) * total);
  }
  let total = 0, term = Math.sqrt(y) / (Math.sqrt(Math.PI) / 2);
  for (let j = 1; j <= (degrees - 1) / 2; j++) { total += term; term *= y / (j + 0.5); }
  return Math.min(1, erfc(Math.sqrt(y)) + Math.exp(-y) * total);
}

/** 1 − erf(x) for x > 0: the series near 0, the continued fraction beyond (Abramowitz and Stegun 7.1.6, 7.1.14). */
function erfc(x) {
  if (x < 2.5) {
    let term = x, total = x;
    for (let n = 1; n < 200 && Math.abs(term) > 1e-18; n++) total += (term *= (2 * x * x) / (2 * n + 1));
    return 1 - (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * total;
  }
  let tail = 0;
  for (let n = 120; n >= 1; n--) tail = n / 2 / (x + tail);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + tail);
}

/** The distance within which at least 95 % of experiments with n draws from p itself stay. */
const quantiles = new Map();
export function band(n, outcomes) {
  if (n <= 0 || outcomes < 2) return 1;
  if (!quantiles.has(outcomes)) {
    let low = 0, high = 1000;
    for (let i = 0; i < 100; i++) {
      const middle = (low + high) / 2;
      if (survival(middle, outcomes - 1) > 0.05) low = middle; else high = middle;
    }
    quantiles.set(outcomes, high);
  }
  return Math.min(1, Math.sqrt(quantiles.get(outcomes) / n) / 2);
}

export const puzzle = (p, q) => bias("again", p, q) < 1e-6 && bias("always", p, q) > 0.05;
