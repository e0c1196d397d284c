// Counts at a moment of a recorded run; the same as `model.py`.

export const RUNS = { decode: 1, verify: 5, prefill: 128 };
export const SCHEMA = "speculative-decoding-live/tiles/1";

export const find = (record, run) => record.runs.find((r) => r.k === RUNS[run]);

export function frame(record, run, t) {
  const chosen = find(record, run);
  const ns = Math.round(t * 1e9);
  let done = 0, span = 0;
  for (const end of chosen.columns.done) { if (end <= ns) done++; if (end > span) span = end; }
  const tiles = chosen.columns.tile.length;
  return {
    done, bytes: done * record.tile.bytes, macs: done * chosen.macs_per_tile, tiles,
    totalBytes: tiles * record.tile.bytes, totalMacs: tiles * chosen.macs_per_tile, span: span / 1e9,
  };
}

const integers = (list, length) => Array.isArray(list) && list.length === length && list.every((x) => Number.isInteger(x));

/** Refuse what is no record of ours; the message is for the reader who dropped the file. */
export function check(record) {
  if (record?.schema !== SCHEMA) throw new Error(`schema: ${String(record?.schema).slice(0, 60)} ≠ ${SCHEMA}`);
  const size = record.tile?.bytes, { rows, columns } = record.matrix ?? {};
  const tiles = rows / record.tile?.rows;
  if (!(Number.isInteger(tiles) && tiles > 0 && tiles <= 1024 && size > 0 && columns > 0)) throw new Error("matrix, tile");
  if (!(Number.isInteger(record.units) && record.units >= 1 && record.units <= 256)) throw new Error("units");
  for (const [name, k] of Object.entries(RUNS)) {
    const run = find(record, name);
    if (!run) throw new Error(`k = ${k}`);
    const c = run.columns ?? {};
    for (const key of ["tile", "unit", "issue", "done"]) if (!integers(c[key], tiles)) throw new Error(`k = ${k}: ${key}`);
    if (new Set(c.tile).size !== tiles || Math.min(...c.tile) !== 0 || Math.max(...c.tile) !== tiles - 1) throw new Error(`k = ${k}: tile`);
    if (c.done.some((end, i) => end < c.issue[i] || c.issue[i] < 0 || c.unit[i] < 0 || c.unit[i] >= record.units)) throw new Error(`k = ${k}: done < issue`);
    if (!(run.macs_per_tile > 0 && run.untraced_s > 0)) throw new Error(`k = ${k}: macs_per_tile`);
  }
  return record;
}
