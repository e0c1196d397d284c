// What must outlive a view: the run on show and the connection to the server. A change of language throws the
// view away and renders another one; this stays, tied to the model. Views subscribe and draw.

import { loadRecord } from "#sd/records.js";
import { createRun, runOf } from "./model.js";
import { MAX_BYTES, read, take } from "./check.js";

const stores = new WeakMap();
const RETRY_MS = [300, 700, 1500, 3000, 5000, 8000];

/** The store of a figure's model, made on first use. */
export function storeOf(model) {
  if (!stores.has(model)) stores.set(model, createStore(model));
  return stores.get(model);
}

function createStore(model) {
  const listeners = new Set();
  const recordings = new Map();
  let socket = null, attempts = 0, timer = 0;
  const changed = () => { for (const fn of [...listeners]) fn(); };

  const store = {
    /** The run on show, where it came from ("recorded", "file", "live") and its file's name. */
    run: null, kind: null, name: "",
    /** What went wrong last, for the words `error.<code>`: { code, detail }. */
    error: null,
    playing: false,
    showing: false, // another run is being put on show: the time starts anew with it
    live: {
      url: liveUrl(model),
      connection: "off", // off, opening, open, lost
      pairs: null, limits: null,
      news: null, // of the models: loading, ready, failed
      phase: "idle", // idle, asked, running
      place: null, // races before ours
      joined: false, // somebody else had asked for the very same race
      run: null, // the last live run, on show or not
      shared: false, // a class watches it: asked for and heard through the room, not over our own line
    },
    subscribe(fn) { listeners.add(fn); return () => listeners.delete(fn); },

    /** Show a recording that ships with the figure. */
    async showRecording(stem) {
      if (!(stem in (model.get("records") ?? {}))) return;
      store.wanted = stem;
      try {
        if (!recordings.has(stem)) {
          const { trace, error } = take(await loadRecord(model, stem));
          if (error) throw new Error(`${error.where} ${error.why}`);
          recordings.set(stem, runOf(trace));
        }
      } catch (reason) {
        fail("fetch", { reason: String(reason?.message ?? reason) });
        return;
      }
      // A slower answer must not replace what was asked for since.
      if (store.wanted === stem) show(recordings.get(stem), "recorded", stem);
    },

    /** Show the last live run again. */
    showLive() {
      store.wanted = null;
      if (store.live.run) show(store.live.run, "live", "");
    },

    /** Show a file of the reader's. Resolves to true if it could be shown. */
    async showFile(file) {
      store.wanted = null;
      if (file.size > MAX_BYTES) { fail("file_size", { size: file.size, limit: MAX_BYTES }); return false; }
      const { trace, error } = read(await file.text());
      if (error) { fail(`file_${error.why}`, { where: error.where }); return false; }
      show(runOf(trace), "file", file.name.slice(0, 60));
      return true;
    },

    /** Open the connection, which makes the server load its models. */
    connect() {
      if (!store.live.url || socket) return;
      open();
    },

    /** Ask for a live race; on a teacher's page (app/static/room.js) for the whole class. */
    start(pair, settings) {
      store.error = null;
      const askForAll = model.get("raceForAll");
      if (askForAll) {
        Object.assign(store.live, { phase: "asked", place: null, race: null, have: 0, joined: false, shared: true });
        askForAll({ do: "run", pair, settings });
        changed();
        return;
      }
      store.live.shared = false;
      Object.assign(store.live, { phase: "asked", place: null, race: null, have: 0, joined: false, request: { do: "run", pair, settings } });
      attempts = 0;
      if (store.live.connection === "open") send(store.live.request);
      else { clearTimeout(timer); socket?.close(); open(); }
      changed();
    },

    /** End our race, wherever it stands. */
    cancel() {
      if (store.live.phase === "idle") return;
      if (store.live.shared) {
        const askForAll = model.get("raceForAll");
        askForAll ? askForAll({ do: "cancel" }) : over({ code: "cancelled", detail: {} });
      } else if (store.live.connection === "open" && store.live.race) send({ do: "cancel" });
      else { over({ code: "cancelled", detail: {} }); send({ do: "cancel" }); }
      changed();
    },

    /** Watch a race of the class; what the room says of it comes to `hear`. */
    watch(race) {
      if (!store.live.shared) store.cancel();
      Object.assign(store.live, { phase: "asked", place: null, race, have: 0, shared: true });
    },
    hear: (message) => receive(message),
  };

  function show(run, kind, name) {
    Object.assign(store, { run, kind, name, error: null, showing: true });
    model.set("focus", null);
    model.set("t", null);
    store.showing = false;
    changed();
  }
  function fail(code, detail) { store.error = { code, detail }; changed(); }

  // --- the connection ------------------------------------------------------------------------------

  function send(message) { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); }

  function open() {
    const mine = socket = new WebSocket(store.live.url);
    store.live.connection = "opening";
    socket.onopen = () => {
      if (mine !== socket) return;
      store.live.connection = "open";
      const { race, have, phase, request, shared } = store.live;
      if (shared) return changed();
      if (race) send({ do: "resume", race, have });
      else if (phase === "asked") send(request);
      changed();
    };
    socket.onmessage = ({ data }) => { if (mine === socket) receive(JSON.parse(data)); };
    socket.onclose = () => { if (mine === socket) closed(); };
    changed();
  }

  /** A race that is going on is worth coming back for; otherwise the next start opens the line again. */
  function closed() {
    socket = null;
    store.live.connection = "lost";
    if (store.live.phase !== "idle" && !store.live.shared) {
      if (attempts < RETRY_MS.length) timer = setTimeout(open, RETRY_MS[attempts++]);
      else over({ code: "connection_lost", detail: {} });
    }
    changed();
  }

  function over(error) {
    Object.assign(store.live, { phase: "idle", place: null, race: null, shared: false });
    if (error) store.error = error;
  }

  function receive(message) {
    const { live } = store;
    switch (message.type) {
      case "hello": Object.assign(live, { pairs: message.pairs, limits: message.limits }); break;
      case "loading": case "ready": case "failed": live.news = message; break;
      case "asked": if (live.phase === "asked") Object.assign(live, { race: message.race, have: 0, joined: message.joined }); break;
      case "queue": if (message.race === live.race) live.place = message.position; break;
      case "refused":
        over(message); // what has arrived stays on show
        break;
      case "events":
        attempts = 0;
        if (message.race === live.race) grow(message.events);
        break;
    }
    changed();
  }

  function grow(events) {
    const { live } = store;
    live.have += events.length;
    for (const event of events) {
      if (event.type === "start") {
        live.phase = "running";
        live.run = createRun();
        show(live.run, "live", "");
        model.set("follow", true);
        live.run.add(event);
        continue;
      }
      if (event.type === "error") over(event);
      // The reader may be looking at another run meanwhile; this one goes on being kept.
      else live.run?.add(event);
      if (event.type === "end") over(null);
    }
  }

  return store;
}

/** Where live races are: beside the page's own addresses, or nowhere in a saved page. */
function liveUrl(model) {
  const base = model.get("base");
  if (typeof base !== "string" || !/^https?:$/.test(location.protocol)) return null;
  const url = new URL(`${base}/live`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}
