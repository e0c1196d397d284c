// The state of one figure: a small observable with the anywidget shape (get, set, on, off,
// save_changes), so that the same view runs in the page, in Panel and in a notebook.

/** Bring `value` into what the schema entry allows. Returns [value, wasChanged]. */
export function clampTo(entry, value) {
  const refuse = [entry.default, true];
  switch (entry.type) {
    case "integer":
    case "number": {
      if (typeof value === "boolean" || value === "" || value === null) return refuse;
      let x = Number(value);
      if (!Number.isFinite(x)) return refuse;
      if (entry.type === "integer") x = Math.round(x);
      const y = Math.min(entry.max ?? Infinity, Math.max(entry.min ?? -Infinity, x));
      return [y, y !== Number(value)];
    }
    case "boolean":
      if (value === true || value === "true" || value === "1" || value === 1) return [true, false];
      if (value === false || value === "false" || value === "0" || value === 0) return [false, false];
      return refuse;
    case "choice":
      return entry.choices.includes(value) ? [value, false] : refuse;
    case "text": {
      const text = String(value);
      const cut = [...text].slice(0, entry.maxLength ?? 2000).join("");
      return [cut, cut !== text];
    }
    default: // "any": private state of a view, never from the URL
      return [value, false];
  }
}

/**
 * @param schema  name → { type, default, min, max, step, choices, unit, private }
 * @param state   values that differ from the defaults
 * @param refused what an address asked for besides: [{ name, value }] or [{ name, unknown: true }]
 * @param extras  read-only things a view needs: strings, lang, data, …
 * @param onSave  called by save_changes() with the model
 */
export function createModel({ schema, state = {}, refused = [], extras = {}, onSave = () => {} }) {
  const values = new Map();
  const handlers = new Map();
  const clamped = [...refused];
  for (const [name, entry] of Object.entries(schema)) {
    if (name in state) {
      const [value, changed] = clampTo(entry, state[name]);
      values.set(name, value);
      if (changed) clamped.push({ name, asked: String(state[name]).slice(0, 40), value });
    } else values.set(name, structuredClone(entry.default));
  }
  const fixed = new Map(Object.entries({ ...extras, schema, clamped }));
  const emit = (event) => { for (const fn of [...(handlers.get(event) ?? [])]) fn(); };

  return {
    get: (name) => (values.has(name) ? values.get(name) : fixed.get(name)),
    set(name, value) {
      if (!values.has(name)) {
        fixed.set(name, value);
        emit(`change:${name}`);
        return;
      }
      const [next] = clampTo(schema[name], value);
      if (Object.is(next, values.get(name))) return;
      values.set(name, next);
      emit(`change:${name}`);
      emit("change");
    },
    on(event, fn) { (handlers.get(event) ?? handlers.set(event, new Set()).get(event)).add(fn); },
    off(event, fn) { handlers.get(event)?.delete(fn); },
    save_changes() { onSave(this); },
  };
}

/** Several values at once, then saved. Works with any model of this shape. */
export function update(model, changes) {
  for (const [name, value] of Object.entries(changes)) model.set(name, value);
  model.save_changes();
}

/** The public state that differs from the defaults: what a link has to carry. */
export function publicState(model) {
  const state = {};
  for (const [name, entry] of Object.entries(model.get("schema"))) {
    const value = model.get(name);
    if (!entry.private && !Object.is(value, entry.default)) state[name] = value;
  }
  return state;
}

/** What an address says of one figure among others: { "roofline.k": "5" } is { k: "5" } for roofline. Nothing private. */
export function stateIn(parameters, { id, schema }) {
  const state = {};
  for (const [key, value] of parameters) {
    const name = key.slice(id.length + 1);
    if (key.startsWith(`${id}.`) && !schema[name]?.private) state[name] = value;
  }
  return state;
}

/** Back to the defaults; private state too (the player's time), but not the reader's bet and puzzle. */
export function reset(model) {
  model.set("resetting", true); // other figures do not follow this
  for (const [name, entry] of Object.entries(model.get("schema")))
    if (!entry.keep) model.set(name, structuredClone(entry.default));
  model.save_changes();
  model.set("resetting", false);
}
