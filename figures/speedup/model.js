// The arithmetic of `model.py`, for the browser; a test compares the two over a grid. Formulas and sources
// stand there.

export const M_MAX = 32;
export const NAMES = ["m", "alpha", "c", "overhead", "verify", "hardware", "batch", "corner", "flops_share", "bandwidth_share", "custom_tflops", "custom_gbs", "growth"];

export const expectedTokens = (alpha, m) => (alpha >= 1 ? m + 1 : (1 - alpha ** (m + 1)) / (1 - alpha));

/** Tokens in a pass at which computing takes as long as reading, BF16 and dense. */
export function knee(data, p) {
  const { flops, bandwidth } = p.hardware === "custom"
    ? { flops: p.custom_tflops * 1e12, bandwidth: p.custom_gbs * 1e9 }
    : data.hardware[p.hardware];
  return (flops * p.flops_share) / (bandwidth * p.bandwidth_share);
}

/** v: a pass over m + 1 tokens a sequence in units of a pass over one. */
export function verification(data, p, m) {
  if (p.verify === "growth") return Math.max(0.5, 1 + p.growth * m);
  const bend = knee(data, p);
  const time = (k) => {
    const compute = (p.batch * k) / bend; // in units of reading the weights
    return p.corner === "sharp" ? Math.max(1, compute) : (1 + compute ** 3) ** (1 / 3);
  };
  return time(m + 1) / time(1);
}

/** One round with m drafted tokens. */
export function roundOf(data, p, m) {
  const tokens = expectedTokens(p.alpha, m), v = verification(data, p, m);
  const cost = m * p.c + v + p.overhead;
  return { m, tokens, v, cost, speedup: tokens / cost };
}

/** All rounds, m = 1 … 32. */
export const rounds = (data, p) => Array.from({ length: M_MAX }, (_, i) => roundOf(data, p, i + 1));

/** The fastest; the shortest of those that are equal but for rounding. */
export const best = (all) => all.reduce((top, r) => (r.speedup > top.speedup * (1 + 1e-9) ? r : top));

/** The α at which S(m) = level, or null where no α up to 1 reaches it. */
export function breakEven(data, p, m, level = 1) {
  const cost = level * (m * p.c + verification(data, p, m) + p.overhead);
  if (cost > m + 1) return null;
  let low = 0, high = 1;
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (expectedTokens(middle, m) >= cost) high = middle; else low = middle;
  }
  return high;
}

/** A good, cheap draft without overhead that loses at every m. */
export const puzzle = (p, top) => p.alpha >= 0.9 && p.c <= 0.05 && p.overhead === 0 && top.speedup < 1;
