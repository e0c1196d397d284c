// One state for all figures of a page: m, α, c, the device and the pair mean the same wherever they appear. When a
// reader has set one in a figure (save_changes), the figures that know the same name follow, except those
// that were set apart. Views know nothing of this: they see their model change. Beside its state, a member's
// model gets
//   followed  [{ names, number, id, limited }]: which values it took over and from which figure, for a quiet
//             mark; limited: its own bounds stopped short of the value
//   linked    true; a view may set it to false (set apart) and back
// A figure that measures (model.set("measured", …)) hands that to those that ask for it in their schema.

import { clampTo } from "#sd/model.js";

/** Names with one meaning in every figure. */
export const SHARED = ["m", "alpha", "c", "hardware", "batch", "custom_tflops", "custom_gbs", "pair"];

/**
 * @param apart     ids of figures that keep their own values
 * @param onApart   called with all of them whenever that changes
 * @param marks     who followed whom when the page was last here: figure → { name: the figure it came from }
 * @param onMarks   called with these whenever they change
 * Returns { join(id, model), settle(), spread(id), apart() }.
 */
export function createShared({ apart = [], onApart = () => {}, marks = {}, onMarks = () => {} } = {}) {
  const members = new Map(); // id → { id, model, names, seen, from }
  const latest = new Map(); // name → { value, id }: what was set last, for a figure that joins again
  const loose = new Set(apart);

  const snapshot = (member) => new Map(member.names.map((name) => [name, member.model.get(name)]));

  /** Say in the member's model what it follows. */
  function mark(member) {
    const groups = new Map();
    for (const [name, { id, limited }] of member.from) {
      const key = `${id} ${limited}`;
      if (!groups.has(key)) groups.set(key, { id, limited, names: [], number: members.get(id)?.model.get("number") ?? null });
      groups.get(key).names.push(name);
    }
    member.model.set("followed", [...groups.values()]);
    onMarks(Object.fromEntries([...members].map(([id, { from }]) => [id, Object.fromEntries([...from].map(([name, x]) => [name, x.id]))])));
  }

  /** After a reload: who followed whom still does, as far as the values agree. */
  function restore() {
    for (const member of members.values()) {
      if (loose.has(member.id)) continue;
      for (const [name, id] of Object.entries(marks[member.id] ?? {})) {
        const origin = members.get(id);
        if (member.from.has(name) || !member.names.includes(name) || !origin?.names.includes(name) || origin === member) continue;
        const value = origin.model.get(name);
        const [kept, limited] = clampTo(member.model.get("schema")[name], value);
        if (!Object.is(kept, member.model.get(name))) continue;
        member.from.set(name, { id, limited });
        if (!latest.has(name)) latest.set(name, { value, id });
      }
      if (member.from.size) mark(member);
    }
  }

  /** Let a member take over one value; what it cannot hold it leaves, a number is brought into its bounds. */
  function adopt(member, name, value, id) {
    const entry = member.model.get("schema")[name];
    const [kept, changed] = clampTo(entry, value);
    if (changed && entry.type !== "integer" && entry.type !== "number") return;
    member.seen.set(name, kept);
    // Equal already, and not by following: nothing to say.
    if (Object.is(member.model.get(name), kept) && !member.from.has(name) && !changed) return;
    member.model.set(name, kept);
    member.from.set(name, { id, limited: changed });
    mark(member);
  }

  function pass(origin, names) {
    for (const name of names) {
      const value = origin.model.get(name);
      latest.set(name, { value, id: origin.id });
      if (origin.from.delete(name)) mark(origin);
      for (const member of members.values())
        if (member !== origin && !loose.has(member.id) && member.names.includes(name)) adopt(member, name, value, origin.id);
    }
  }

  /** What the others hold, where nobody has set it yet: a value that some figure's link gave it. */
  function current(name, id) {
    const other = [...members.values()].find((x) => x.id !== id && !loose.has(x.id) && x.names.includes(name) && !Object.is(x.model.get(name), x.model.get("schema")[name].default));
    return other && { value: other.model.get(name), id: other.id };
  }

  return {
    /** Ids of the figures that are set apart. */
    apart: () => [...loose],

    join(id, model) {
      const schema = model.get("schema");
      const names = SHARED.filter((name) => schema[name] && !schema[name].private);
      const member = { id, model, names, seen: new Map(), from: new Map() };
      member.seen = snapshot(member);
      members.set(id, member);
      model.set("followed", []);
      model.set("linked", !loose.has(id));
      model.on("change:linked", () => {
        const linked = model.get("linked");
        if (linked === !loose.has(id)) return;
        if (linked) {
          loose.delete(id);
          for (const name of names) {
            const found = latest.get(name) ?? current(name, id);
            if (found && found.id !== id) adopt(member, name, found.value, found.id);
          }
        } else loose.add(id);
        onApart([...loose]);
      });
      model.on("change:measured", () => {
        for (const other of members.values())
          if (other.model.get("schema").measured) other.model.set("measured", model.get("measured"));
      });
    },

    /** After all have joined: a value that a link sets in one figure holds for those it does not mention. */
    settle() {
      for (const name of SHARED) {
        const set = [...members.values()].filter((x) => x.names.includes(name) && !loose.has(x.id) && !Object.is(x.model.get(name), x.model.get("schema")[name].default));
        if (set.length && set.every((x) => Object.is(x.model.get(name), set[0].model.get(name)))) pass(set[0], [name]);
      }
      restore();
    },

    /** The figure `id` has saved: hand on what changed since it last did. */
    spread(id) {
      const member = members.get(id);
      if (!member) return;
      const changed = member.names.filter((name) => !Object.is(member.model.get(name), member.seen.get(name)));
      member.seen = snapshot(member);
      // A figure that is reset, or set apart, keeps to itself.
      if (member.model.get("resetting") || loose.has(id)) {
        for (const name of changed) member.from.delete(name);
        if (changed.length) mark(member);
        return;
      }
      pass(member, changed);
    },
  };
}
