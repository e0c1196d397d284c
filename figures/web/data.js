// Data that is read when it is wanted: JSON from a server, or a script that says the same in a folder of files,
// where a browser lets no page read another file (`file://`) but runs scripts.

const reading = new Map(); // what is asked for → promise

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`could not load ${url} (${answer.status})`);
  return answer.json();
}

/** Runs a classic script once. Rejects with a message that can be shown. */
export function loadScript(url) {
  return once(url, () => new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => done();
    script.onerror = () => { script.remove(); fail(new Error(`could not load ${url}`)); };
    document.head.append(script);
  }));
}

/** Only success is kept: what failed may be tried again. */
function once(key, start) {
  if (!reading.has(key)) {
    const promise = start();
    promise.catch(() => reading.delete(key));
    reading.set(key, promise);
  }
  return reading.get(key);
}

/** Resolves when nothing that was asked for is still on its way, well or not. */
export const settled = () => Promise.allSettled([...reading.values()]);

async function inflated(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/**
 * The value at `source`: the address of a JSON file, or of a script `sdData["<its file name>"] = …` (made by
 * `app build`), or { gzip: "base64" }, compressed JSON inside the page (made by `figures export`), or the value
 * itself.
 */
export async function readData(source) {
  if (typeof source === "object") return "gzip" in source ? once(source, () => inflated(source.gzip)) : source;
  if (!source.endsWith(".js")) return once(source, () => fetched(source));
  await loadScript(source);
  return globalThis.sdData[source.split("/").at(-1)];
}
