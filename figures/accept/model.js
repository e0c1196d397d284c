// The arithmetic of `model.py`, for the browser; a test compares the two. The rule and why the bars fill evenly
// stand there.

import { acceptance, cumulative, kept, missing, pick } from "#sd/distribution.js";
import { rng } from "#sd/rng.js";

export const DRAWS = 400;

/** `count` draws: { guess, height, accepted, written, place }. */
export function draws(p, q, seed, count = DRAWS) {
  const draw = rng(seed);
  const common = kept(p, q), short = missing(p, q);
  const ofQ = cumulative(q), ofShort = cumulative(short);
  const total = ofShort.at(-1);
  return Array.from({ length: count }, () => {
    const first = draw.uniform(), second = draw.uniform(), third = draw.uniform();
    const guess = pick(ofQ, first);
    const height = second * q[guess];
    if (height < p[guess]) return { guess, height, accepted: true, written: guess, place: height };
    if (total <= 0) return { guess, height, accepted: false, written: guess, place: p[guess] * second };
    const written = pick(ofShort, third);
    const inside = third * total - (ofShort[written] - short[written]);
    return { guess, height, accepted: false, written, place: common[written] + Math.min(Math.max(inside, 0), short[written]) };
  });
}

export function counts(made, size) {
  const found = Array(size).fill(0);
  for (const draw of made) found[draw.written]++;
  return found;
}

export function puzzle(p, q) {
  const favourite = (values) => {
    const top = Math.max(...values);
    const at = values.flatMap((x, i) => (x > top - 1e-9 ? [i] : []));
    return at.length === 1 ? at[0] : null;
  };
  return favourite(p) !== null && favourite(p) === favourite(q) && acceptance(p, q) < 0.5;
}
