// Measured data that a figure ships: fetched when wanted, or already inside a self-contained page.

const cache = new Map();

/** The record of this name, parsed. Rejects with a message that can be shown. */
export async function loadRecord(model, name) {
  const inside = model.get("recordData")?.[name];
  if (inside) return inside;
  const url = model.get("records")?.[name];
  if (!url) throw new Error(`no record named ${name}`);
  if (!cache.has(url)) {
    const reading = fetch(url).then((answer) => {
      if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
      return answer.json();
    });
    reading.catch(() => cache.delete(url));
    cache.set(url, reading);
  }
  return cache.get(url);
}

/**
 * Let a reader drop a JSON file on `element`, or choose one with `input`. `take(object)` may throw: its message
 * goes to `refuse`.
 */
export function acceptFile(on, { element, input, take, refuse, limit = 2_000_000 }) {
  const read = async (file) => {
    if (!file) return;
    try {
      if (file.size > limit) throw new Error(`${file.name}: ${(file.size / 1e6).toFixed(1)} MB > ${limit / 1e6} MB`);
      take(JSON.parse(await file.text()), file.name);
    } catch (reason) {
      refuse(String(reason.message ?? reason));
    }
  };
  on.listen(element, "dragover", (event) => { event.preventDefault(); element.dataset.drop = "over"; });
  on.listen(element, "dragleave", () => { delete element.dataset.drop; });
  on.listen(element, "drop", (event) => { event.preventDefault(); delete element.dataset.drop; read(event.dataTransfer.files[0]); });
  if (input) on.listen(input, "change", () => { read(input.files[0]); input.value = ""; });
}
