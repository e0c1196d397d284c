"""Figure `race`: two real models write the same text on one clock, plain and speculative.

It plays traces (docs/trace.md): recorded ones that ship in `recorded/`, files that a reader drops
onto it, and live races as they arrive over a WebSocket (docs/architecture.md, section 6).
`view.js` puts the parts together: `model.js` is the arithmetic, `check.js` judges foreign files,
`store.js` holds the run and the connection across a change of language, `lanes.js` shows the texts,
`strip.js` the time, `detail.js` one pass, `ladder.js` the speed-up explained, `panel.js` the choice
of a run.
"""
