// The arithmetic of `kernels/hardware.py`, for the browser; a test compares both to 1e-9.

export const PRECISIONS = { bf16: 2, int8: 1, int4: 0.5 };
export const K_MAX = 8192;
export const PREFILL = 2048;

/** The machine that serves the page; `model.py` says what stands in for it until it has been measured. */
export const LIVE = "live";

/** `data` with the measurement of this server, if there is one: what `model.py` calls a summary. */
export function withLive(data, measured) {
  if (!measured) return { ...data, measured: { ...data.measured, [LIVE]: Object.values(data.measured)[0] } };
  const { device: name, flops, bandwidth } = measured;
  return {
    ...data,
    hardware: { ...data.hardware, [LIVE]: { name, flops, bandwidth, memory: 0, source: "measured", unconfirmed: [] } },
    measured: { ...data.measured, [LIVE]: measured },
  };
}

const used = (shape) => shape.active || shape.parameters;

/** Parameters read by a pass over `tokens` tokens; for a mixture of experts, in expectation. */
export function parametersRead(shape, tokens) {
  if (!shape.experts) return shape.parameters;
  const expert = (shape.parameters - shape.active) / (shape.experts - shape.active_experts);
  const shared = shape.active - shape.active_experts * expert;
  const miss = 1 - shape.active_experts / shape.experts;
  return shared + shape.experts * (1 - miss ** tokens) * expert;
}

export const kvPerToken = (shape) => shape.kv_bytes || 4 * shape.kv_heads * shape.head_dim * shape.layers;

/** The device of a state: { flops, bandwidth, memory }, scaled by the efficiency shares. */
export function device(data, p) {
  const base = p.hardware === "custom"
    ? { name: "custom", flops: p.custom_tflops * 1e12, bandwidth: p.custom_gbs * 1e9, memory: p.custom_gb * 1e9 }
    : data.hardware[p.hardware];
  return { ...base, flops: base.flops * p.flops_share, bandwidth: base.bandwidth * p.bandwidth_share };
}

/** One ideal pass over k tokens: seconds, bytes, FLOPs. */
export function forward(hardware, shape, k, { batch, context, precision }) {
  const weightBytes = parametersRead(shape, batch * k) * PRECISIONS[precision];
  const kvBytes = batch * context * kvPerToken(shape);
  const flops = 2 * batch * k * used(shape);
  const attentionFlops = 4 * batch * shape.layers * shape.heads * shape.head_dim * k * context;
  const read = (weightBytes + kvBytes) / hardware.bandwidth;
  const compute = (flops + attentionFlops) / hardware.flops;
  return { weightBytes, kvBytes, flops, attentionFlops, read, compute, time: Math.max(read, compute) };
}

/** The k at which computing takes as long as reading. */
export function knee(hardware, shape, p) {
  if (!shape.experts && !p.context) return (PRECISIONS[p.precision] * hardware.flops) / (2 * hardware.bandwidth * p.batch);
  const excess = (k) => { const x = forward(hardware, shape, k, p); return x.compute - x.read; };
  let low = 0, high = 1e7;
  if (excess(high) < 0) return Infinity;
  for (let i = 0; i < 200; i++) {
    const middle = (low + high) / 2;
    if (excess(middle) < 0) low = middle; else high = middle;
  }
  return high;
}

/** Everything that the figure shows for a state. */
export function frame(data, p) {
  const hardware = device(data, p);
  const shape = data.models[p.model];
  const at = (k) => forward(hardware, shape, k, p);
  const bend = knee(hardware, shape, p);
  const needs = shape.parameters * PRECISIONS[p.precision] + p.batch * p.context * kvPerToken(shape);
  return {
    hardware, shape, at, knee: bend, here: at(p.k), decode: at(1), verify: at(p.m + 1), prefill: at(PREFILL),
    needs, fits: !hardware.memory || needs <= hardware.memory, free: Math.max(0, Math.floor(Math.min(bend, 1e9)) - p.k),
  };
}

/**
 * The measured points of the chosen machine, brought to the chosen model: [[k, median, p10, p90], …] in
 * seconds. A pass reads in proportion to the bytes of its weights, so times scale with them; that holds for
 * the precision that was measured, one sequence, no KV cache, a dense model. Otherwise there are none.
 */
export function measuredPoints(data, p) {
  const measured = data.measured[p.hardware], shape = data.models[p.model];
  if (!measured || measured.precision !== p.precision || p.batch !== 1 || p.context || shape.experts) return [];
  const scale = (shape.parameters * PRECISIONS[p.precision]) / measured.bytes;
  return measured.points.map(([k, ...times]) => [k, ...times.map((x) => x * scale)]);
}
