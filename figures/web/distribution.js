// Two distributions over a small vocabulary, as `accept` and `lossless` hold them: the same as
// `figures/distribution.py`, where the functions are described; a test compares the two.

export const SIZES = [2, 6];
const TOKENS = ["the", "a", "this"];
const WEIGHT = /^(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]{1,2})?$/;
const sum = (values) => values.reduce((total, x) => total + x, 0);

export function tokensOf(text) {
  const found = text.split("|").map((token) => [...token.trim()].slice(0, 24).join("")).filter(Boolean).slice(0, SIZES[1]);
  return found.length >= SIZES[0] ? found : [...TOKENS];
}

export function weightsOf(text, size) {
  const parts = text.split(",").map((part) => part.trim()).slice(0, size);
  const values = Array.from({ length: size }, (_, i) => (WEIGHT.test(parts[i] ?? "") ? Number(parts[i]) : 0));
  const total = sum(values);
  return total <= 0 ? values.map(() => 1 / size) : values.map((x) => x / total);
}

export const kept = (p, q) => p.map((x, i) => Math.min(x, q[i]));
export const missing = (p, q) => p.map((x, i) => Math.max(0, x - q[i]));
export const acceptance = (p, q) => sum(kept(p, q));
export const distance = (p, q) => sum(p.map((x, i) => Math.abs(x - q[i]))) / 2;

export function residual(p, q) {
  const left = missing(p, q), total = sum(left);
  return total > 1e-12 ? left.map((x) => x / total) : [...p];
}

export function cumulative(p) {
  let total = 0;
  return p.map((x) => (total += x));
}

export function pick(sums, u) {
  const at = u * sums[sums.length - 1];
  for (let i = 0; i < sums.length; i++) if (at < sums[i]) return i;
  return sums.reduce((last, total, i) => (i === 0 || total > sums[i - 1] ? i : last), 0);
}

/**
 * The weights with entry i moved to x (0 to 1) and the others keeping their proportions: whole thousandths that
 * add up to 1000, as text for a link ("50,30,20").
 */
export function moved(values, i, x) {
  const own = Math.round(Math.min(1, Math.max(0, x)) * 1000);
  const others = sum(values) - values[i];
  const shares = values.map((value, j) => (j === i ? 0 : ((1000 - own) * (others > 1e-9 ? value / others : 1 / (values.length - 1)))));
  const whole = shares.map(Math.floor);
  const order = shares.map((share, j) => [share - whole[j], j]).filter(([, j]) => j !== i).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  for (let left = 1000 - own - sum(whole), k = 0; left > 0; left--, k++) whole[order[k % order.length][1]]++;
  whole[i] = own;
  return textOf(whole.map((n) => n / 1000));
}

/** Probabilities as text for a link, in percent. */
export const textOf = (values) => values.map((x) => String(Math.round(x * 1e6) / 1e4)).join(",");
