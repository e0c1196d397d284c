// A seeded generator that gives the same draws here and in Python (`figures/rng.py`): sfc32
// (Chris Doty-Humphrey's "small fast counting" generator), 32-bit arithmetic only.

export function rng(seed) {
  let a = 0x9e3779b9, b = 0x243f6a88, c = seed | 0, counter = 1;
  const next = () => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) | 0;
    c = (c + sum) | 0;
    return sum >>> 0;
  };
  for (let i = 0; i < 15; i++) next();
  return {
    /** An integer of 32 bits. */
    bits: next,
    /** Uniform in [0, 1): never 1. */
    uniform: () => next() / 4294967296,
  };
}
