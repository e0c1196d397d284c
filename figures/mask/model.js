// The structure of `model.py`, for the browser; a test compares the two. What it means, and from where, stands
// there.

export const NONE_REJECTED = 9;

const SPACE = /[ \t\n\r\u00a0\u3000]+/g;
const TOKEN = / ?(?:[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af]|[A-Za-z0-9\u00c0-\u024f\u0370-\u052f'’]+|[^ ])/gu;

/** Words, Han characters and kana, signs; a token keeps the space before it. */
export const tokenize = (sentence) => sentence.replace(SPACE, " ").replace(/^ +| +$/g, "").match(TOKEN) ?? [];

/** The pass over `tokens` (two at least), the last m of them drafted. */
export function verification(tokens, { m: asked, output, reject }) {
  const m = Math.min(asked, tokens.length - 1);
  const context = tokens.length - m;
  const judged = reject > 0;
  const rejected = reject > 0 && reject <= m ? reject : 0;
  const outputs = Array.from({ length: m + 1 }, (_, i) => {
    const index = i + 1;
    const fate = !judged ? "open"
      : rejected && index >= rejected ? (index === rejected ? "supplied" : "void")
        : index === m + 1 ? "bonus" : "accepted";
    const position = context - 1 + i;
    return { index, position, sees: position + 1, checks: index <= m ? index : 0, fate };
  });
  return {
    tokens, context, m, outputs,
    drafts: outputs.slice(0, m).map(({ fate }) => (fate === "supplied" ? "rejected" : fate)),
    selected: Math.min(output, m + 1), rejected,
    gained: judged ? rejected || m + 1 : 0,
  };
}
