// Scales: from a quantity to a place on the screen, and back.

export function linear([d0, d1], [r0, r1]) {
  const f = (x) => r0 + ((x - d0) / (d1 - d0)) * (r1 - r0);
  f.invert = (y) => d0 + ((y - r0) / (r1 - r0)) * (d1 - d0);
  return f;
}

export function log([d0, d1], [r0, r1]) {
  const f = linear([Math.log(d0), Math.log(d1)], [r0, r1]);
  const g = (x) => f(Math.log(x));
  g.invert = (y) => Math.exp(f.invert(y));
  return g;
}

/** Round ticks of a linear axis: about `count` of them, steps of 1, 2 or 5 × 10^n. */
export function ticks(d0, d1, count = 6) {
  const raw = (d1 - d0) / Math.max(1, count);
  const magnitude = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * magnitude).find((x) => x >= raw);
  const out = [];
  for (let i = Math.ceil(d0 / step - 1e-9); i * step <= d1 + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}

/** Powers of `base` within the domain. */
export function logTicks(d0, d1, base = 10) {
  const out = [];
  for (let e = Math.ceil(Math.log(d0) / Math.log(base) - 1e-9); base ** e <= d1 * (1 + 1e-9); e++) out.push(base ** e);
  return out;
}

export const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));
