// The experiment under way, tied to the model so that a change of language does not lose it. Draws are made in
// a Web Worker whose source is that of `model.js`, wrapped in a Blob, so it needs no file of its own; where a
// page forbids workers, in slices on the main thread instead. Either way the draws are the same.

import { CHECKPOINTS, createSampler, jobOf, tools } from "./model.js";

const SLICE = 20_000; // draws between two answers
const QUICK = 5_000; // so few are made at once, without a worker
const stores = new WeakMap();

/** Runs in the worker, or here: answers { start: job } and { to: n } with { n, counts, path }. */
function serve(tools, createSampler, checkpoints, slice, answer, later) {
  let sampler = null, goal = 0, busy = false, ticket = 0;
  const turn = () => {
    busy = false;
    if (!sampler || sampler.n >= goal) return;
    const end = Math.min(goal, sampler.n + slice), path = [];
    for (const n of checkpoints) if (n > sampler.n && n <= end) { sampler.run(n); path.push([n, structuredClone(sampler.counts)]); }
    sampler.run(end);
    answer({ ticket, n: sampler.n, counts: structuredClone(sampler.counts), path });
    go();
  };
  const go = () => { if (!busy) { busy = true; later(turn); } };
  return (message) => {
    if (message.start) { sampler = createSampler(tools, message.start); ticket = message.ticket; }
    goal = message.to;
    go();
  };
}

function worker(answer) {
  // Names may change when this is bundled, so every function is handed over by place, not by name.
  const source = `"use strict"; onmessage = ((serve) => { const take = serve; return (event) => take(event.data); })((${serve})(
    { rng: ${tools.rng}, cumulative: ${tools.cumulative}, pick: ${tools.pick} }, ${createSampler},
    ${JSON.stringify(CHECKPOINTS)}, ${SLICE}, (message) => postMessage(message), (fn) => setTimeout(fn, 0)));`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    const made = new Worker(url);
    made.onmessage = (event) => answer(event.data);
    return made;
  } finally {
    // The worker has its source once it answers; the address is let go a little later.
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

/** The experiment of a figure's model, made on first use. */
export function storeOf(model) {
  if (!stores.has(model)) stores.set(model, createStore());
  return stores.get(model);
}

function createStore() {
  const listeners = new Set();
  let key = null, ticket = 0, send = null, last = null;
  let remote = false, fresh = false; // made by `serve`; nothing of it has arrived yet
  const changed = () => { for (const fn of [...listeners]) fn(); };
  const store = {
    n: 0, goal: 0, counts: null,
    /** [n, counts] at the checkpoints passed. */
    path: [],
    /** "worker" or "page", once more than a few draws were asked for. */
    where: null,
    subscribe(fn) { listeners.add(fn); return () => listeners.delete(fn); },
    /** Make the experiment stand at n draws of this p, q and seed. */
    aim(p, q, seed, n) {
      const next = JSON.stringify([p, q, seed]), same = next === key;
      const stopped = remote && store.goal > store.n;
      store.goal = n;
      if (same && n === store.n) {
        // What is still under way has gone further by now: more draws begin anew, which takes a moment.
        if (stopped) { ticket++; remote = false; post({ to: 0 }); }
        return;
      }
      if (n <= QUICK) {
        const sampler = createSampler(tools, jobOf(p, q, seed));
        const path = [];
        for (const stop of CHECKPOINTS) if (stop <= n) { sampler.run(stop); path.push([stop, structuredClone(sampler.counts)]); }
        sampler.run(n);
        ticket++; // whatever is under way elsewhere is given up
        remote = false;
        Object.assign(store, { n, counts: sampler.counts, path });
        key = next;
        changed();
      } else if (same && remote && n > store.n) post({ to: n });
      else {
        if (!same || n < store.n) Object.assign(store, { n: 0, counts: null, path: [] });
        key = next;
        ticket++;
        remote = fresh = true;
        post({ start: jobOf(p, q, seed), ticket, to: n });
      }
    },
  };
  const take = (message) => {
    if (message.ticket !== ticket) return; // an experiment given up meanwhile
    if (fresh) store.path = [];
    fresh = false;
    Object.assign(store, { n: message.n, counts: message.counts });
    store.path.push(...message.path);
    changed();
  };
  const here = () => {
    store.where = "page";
    send = serve(tools, createSampler, CHECKPOINTS, SLICE, take, (fn) => setTimeout(fn, 0));
  };
  function post(message) {
    if (message.start) last = message;
    if (!send) {
      try {
        const made = worker(take);
        store.where = "worker";
        send = (m) => made.postMessage(m);
        // A policy of the page may forbid the worker after it was made: begin again here.
        made.onerror = (event) => { event.preventDefault(); made.terminate(); here(); fresh = true; send({ ...last, to: store.goal }); };
      } catch {
        here();
      }
    }
    send(message);
  }
  return store;
}
