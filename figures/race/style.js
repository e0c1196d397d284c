// The look of the race. Colours come from the page's tokens; every mark has a line or a shape of its own too.

export const STYLE = `
.sd-figure[data-figure="race"] { --rc-tall: calc(6 * 1.75em); }
.rc-choice { display: flex; flex-wrap: wrap; gap: var(--sd-2) var(--sd-5); align-items: end; margin-bottom: var(--sd-4); }
.rc-choice > * { max-width: 100%; }
.rc-panels[data-mode="live"], .rc-statusrow, .rc-error { width: 100%; }
.rc-panel { display: flex; flex-wrap: wrap; gap: var(--sd-2) var(--sd-4); align-items: end; }
.rc-panels[data-mode="live"] .rc-panel { margin-top: var(--sd-2); }
.rc-panel[hidden] { display: none; }
.rc-panel .sd-control { min-width: min(16em, 100%); }
.rc-panel > .sd-wide { flex: 1 1 14em; }
.rc-panel > [data-control="prompt"] { flex: 3 1 26em; }
.rc-panel select { width: 100%; }
.rc-files { display: flex; flex-wrap: wrap; gap: 0; }
.rc-settings { display: flex; flex-wrap: wrap; gap: var(--sd-2) var(--sd-5); align-items: end; width: 100%; }
.rc-settings .sd-control.sd-wide { flex: 1 1 13em; max-width: 24em; }
.rc-more { width: 100%; }
.rc-more summary { cursor: pointer; color: var(--sd-ink-2); font-size: var(--sd-size-s); min-height: 28px; display: flex; align-items: center; gap: 6px; }
.rc-more summary::before { content: "▸"; color: var(--sd-ink-3); }
.rc-more[open] summary::before { content: "▾"; }
.rc-more .rc-settings { padding-top: var(--sd-2); }
.rc-go { display: flex; gap: var(--sd-2); width: 100%; }
.rc-panel > .sd-note { width: 100%; }
.rc-panel > .sd-note:empty { display: none; }
.rc-statusrow { display: flex; flex-wrap: wrap; align-items: center; gap: var(--sd-3); }
.rc-status { color: var(--sd-ink-2); font-size: var(--sd-size-s); font-variant-numeric: tabular-nums; }
.rc-status:empty, .rc-error:empty { display: none; }
.rc-statusrow progress { width: 12em; max-width: 100%; height: 8px; accent-color: var(--sd-target); }
.rc-drop { outline: 2px dashed var(--sd-focus); outline-offset: -6px; }
.rc-dropnote { position: absolute; inset: 0; display: grid; place-items: center; background: color-mix(in srgb, var(--sd-raised) 88%, transparent); font-weight: 600; z-index: 2; pointer-events: none; }
.rc-dropnote[hidden] { display: none; }

.rc-prompt { display: grid; gap: 2px; padding: var(--sd-2) var(--sd-3); background: var(--sd-sunken); border-radius: var(--sd-radius-s); margin-bottom: var(--sd-4); }
.rc-prompt q { quotes: none; overflow-wrap: anywhere; white-space: pre-wrap; max-height: 6.2em; overflow-y: auto; }
.rc-prompt b { font-weight: 600; color: var(--sd-ink-2); font-size: var(--sd-size-s); }
.rc-meta { color: var(--sd-ink-3); font-size: var(--sd-size-s); }

.rc-lane { margin-bottom: var(--sd-3); }
.rc-lanehead { display: flex; flex-wrap: wrap; gap: 0 var(--sd-3); min-height: 1.5em; align-items: baseline; font-variant-numeric: tabular-nums; margin-bottom: 2px; }
.rc-lanename { margin: 0; font-size: var(--sd-size-m); font-weight: 650; }
.rc-lanename[data-lane="speculative"]::before, .rc-lanename[data-lane="plain"]::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-inline-end: 7px; background: var(--sd-target); }
.rc-lanename[data-lane="speculative"]::before { background: linear-gradient(90deg, var(--sd-draft) 50%, var(--sd-target) 50%); }
.rc-count { color: var(--sd-ink-2); font-size: var(--sd-size-s); }
.rc-rate:empty::before { content: "\\00a0"; }
.rc-rate { color: var(--sd-ink); font-size: var(--sd-size-s); font-weight: 600; margin-inline-start: auto; }
.rc-text { font: 400 var(--sd-size-m) / 1.75 var(--sd-font-ui); white-space: pre-wrap; overflow-wrap: anywhere; max-height: var(--rc-tall); overflow-y: auto; margin-bottom: 6px; min-height: 1.75em; }
.rc-text.rc-measure [data-state] { display: inline; }
.rc-text.rc-measure [data-origin="drafted"], .rc-text.rc-measure [data-origin="rejected"] { display: none; }
.rc-text [data-state="future"], .rc-text [data-state="gone"] { display: none; }
.rc-keep .rc-text [data-origin="rejected"][data-state="gone"] { display: inline; }

.rc-token { text-decoration-thickness: 2px; text-underline-offset: 3px; text-decoration-skip-ink: none; border-radius: 3px; cursor: pointer; }
.rc-token[data-origin="target"] { color: var(--sd-target-ink); }
.rc-token[data-origin="accepted"] { text-decoration-line: underline; text-decoration-color: var(--sd-accepted); }
.rc-token[data-origin="drafted"] { color: var(--sd-draft-ink); text-decoration: underline dotted var(--sd-draft); text-decoration-thickness: 3px; }
.rc-token[data-origin="rejected"] { color: var(--sd-rejected-ink); text-decoration: line-through var(--sd-rejected); text-decoration-thickness: 2px; }
.rc-token[data-origin="supplied"] { color: var(--sd-supplied-ink); text-decoration: underline double var(--sd-supplied); text-decoration-thickness: 1.5px; background: var(--sd-supplied-soft); }
.rc-token[data-origin="bonus"] { box-shadow: inset 0 0 0 1.5px var(--sd-bonus); }
.rc-token.rc-marked { outline: 1px solid var(--sd-ink); outline-offset: 0; background: var(--sd-sunken); }
.rc-token.rc-part { outline: 2px dashed var(--sd-rejected); outline-offset: 1px; }
.rc-proof { margin: 2px 0 var(--sd-2) !important; }
.rc-proof:empty { display: none; }

.rc-striprow { min-width: 0; }
.rc-strip { display: block; touch-action: pan-y; cursor: crosshair; overflow: visible; border-bottom: 1px solid var(--sd-line); }
.rc-bar[data-model="target"] { fill: var(--sd-target); }
.rc-bar[data-model="draft"] { fill: var(--sd-draft); }
.rc-bar[data-kind="prefill"] { opacity: 0.55; }
.rc-idle { fill: var(--sd-overhead); }
.rc-pip { fill: var(--sd-target); }
.rc-pip[data-origin="accepted"] { fill: var(--sd-accepted); }
.rc-pip[data-origin="supplied"] { fill: var(--sd-supplied); }
.rc-pip[data-origin="bonus"] { fill: none; stroke: var(--sd-bonus); stroke-width: 1.5; }
.rc-pip[data-origin="rejected"] { fill: none; stroke: var(--sd-rejected); stroke-width: 1.4; }
.rc-head { stroke: var(--sd-ink); stroke-width: 1.2; }
.rc-chosen { fill: none; stroke: var(--sd-ink); stroke-width: 1.5; }
.sd-figure svg .rc-flag { font-size: 12px; fill: var(--sd-ink); font-weight: 600; }
.rc-axis { display: block; overflow: visible; }
.rc-axis line { stroke: var(--sd-line-strong); }
.rc-axisnote { color: var(--sd-ink-3); font-size: var(--sd-size-xs); text-align: end; margin-top: -2px !important; }
.rc-legend { margin: var(--sd-1) 0 var(--sd-2); }
.rc-legend .rc-token { cursor: auto; }
.rc-legend i[data-mark="prefill"] { opacity: 0.55; }
.rc-legend i { width: 14px; height: 9px; border-radius: 2px; display: inline-block; }
.rc-figure .sd-say { min-height: 4.5em; }
.rc-play { display: flex; flex-wrap: wrap; gap: 0 var(--sd-4); align-items: center; }
.rc-play .sd-transport { flex: 1 1 30em; }

.rc-detail { align-self: start; border: 1px solid var(--sd-line); border-radius: var(--sd-radius); padding: var(--sd-2) var(--sd-3); margin: 0; min-height: calc(7em + (var(--rc-rows, 5) + 1) * 1.625rem); }
.rc-detail[data-empty="true"] { color: var(--sd-ink-3); }
.rc-detailbar { display: flex; gap: var(--sd-3); align-items: center; min-height: 32px; }
.rc-detailhead { display: flex; flex-wrap: wrap; gap: 0 var(--sd-3); flex: 1; font-size: var(--sd-size-s); color: var(--sd-ink-2); font-variant-numeric: tabular-nums; }
.rc-detailhead b { color: var(--sd-ink); }
.rc-detailsay { max-width: 78ch; }
.rc-detailsay:empty { display: none; }
.rc-detail .sd-tablewrap { max-height: calc((var(--rc-rows, 5) + 1) * 1.6875rem); }
.rc-judged th, .rc-judged td { padding: 3px 12px 3px 0; white-space: nowrap; }
.rc-judged tr[data-origin="not_judged"] { color: var(--sd-ink-3); }

.rc-account { display: grid; gap: var(--sd-2); align-content: start; align-self: start; }
.rc-account h4 { margin: var(--sd-2) 0 0; font-size: var(--sd-size-m); font-weight: 650; }
.rc-alpharow { display: grid; gap: 4px; max-width: 34em; }
.rc-alpha { font-variant-numeric: tabular-nums; font-size: var(--sd-size-s); color: var(--sd-ink-2); }
.rc-scale { position: relative; height: 10px; border-radius: 5px; background: var(--sd-sunken); border: 1px solid var(--sd-line); }
.rc-band { position: absolute; top: 1px; bottom: 1px; background: var(--sd-accepted); opacity: 0.35; border-radius: 3px; }
.rc-dot { position: absolute; top: -2px; width: 3px; height: 12px; margin-left: -1.5px; background: var(--sd-accepted-ink); }
.rc-ladder { list-style: none; margin: 0; padding: 0; display: grid; gap: 5px; font-size: var(--sd-size-s); }
.rc-rung { display: grid; grid-template-columns: minmax(0, 1fr) minmax(4em, 8em) 3.4em; gap: var(--sd-2); align-items: center; color: var(--sd-ink-2); }
.rc-ladder[data-empty="true"] :is(.rc-rungtrack, .rc-rungvalue) { opacity: 0.45; }
.rc-account[data-inferred="true"] :is(.rc-ladder, .rc-scale) { display: none; }
.rc-rungtrack { position: relative; height: 14px; }
.rc-rungbar { position: absolute; inset: 0 auto 0 0; background: var(--sd-line-strong); opacity: 0.55; border-radius: 2px; }
.rc-rung[data-rung="formula"] .rc-rungbar { background: repeating-linear-gradient(45deg, var(--sd-target) 0 3px, var(--sd-target-soft) 3px 6px); opacity: 1; }
.rc-rung[data-rung="measured"] .rc-rungbar { background: var(--sd-target); opacity: 1; }
.rc-one { position: absolute; top: -3px; bottom: -3px; left: var(--rc-one); border-left: 1.5px dashed var(--sd-ink); }
.rc-rungvalue { text-align: end; font-variant-numeric: tabular-nums; color: var(--sd-ink); font-weight: 600; }

.rc-below { display: grid; grid-template-columns: minmax(0, 1fr); gap: var(--sd-2) var(--sd-5); }
@container (min-width: 800px) { .rc-below { grid-template-columns: minmax(0, 1.2fr) minmax(0, 1fr); } }
@container (max-width: 560px) {
  .rc-text { --rc-tall: calc(10 * 1.75em); }
  .rc-rung { grid-template-columns: 1fr 4em; }
  .rc-runglabel { grid-column: 1 / -1; }
  .rc-rate { margin-inline-start: 0; }
  .rc-lanename { width: 100%; }
  .rc-judged th, .rc-judged td { padding-right: 10px; }
}
@media print { .rc-choice, .rc-play, .rc-detail { display: none; } .rc-text { max-height: none; min-height: 0 !important; } }
`;
