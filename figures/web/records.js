// Measured data that a figure ships, and data that a reader brings.

import { readData } from "#sd/data.js";

/** The record of this name, parsed. Rejects with a message that can be shown. */
export async function loadRecord(model, name) {
  const source = model.get("records")?.[name];
  if (!source) throw new Error(`no record named ${name}`);
  return readData(source);
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
