// The outside of joined.js: ties a figure's frames to a program in Python (figures/notebook.py, which says which of
// the two functions at the end it exports, since both hosts would call either). anywidget calls `initialize` as soon
// as the program has made its end, Panel calls `render` where the figure stands. Every parameter is a value of the
// host's model, under its name with a prefix.

const PREFIX = "sd_";

/**
 * @param model   { get(name), set(name, value), on(name, fn), save() } of the host
 * @param frames  returns the figure's frames in this page
 * Returns a clean-up function.
 */
function connect(model, names, frames) {
  const ports = new Map(); // frame → port
  let origin = null; // whose change is being passed on: it hears no echo
  const value = (name) => model.get(PREFIX + name);
  const join = (frame) => {
    for (const [other, port] of ports) if (other === frame || !other.isConnected) { port.close(); ports.delete(other); }
    const { port1, port2 } = new MessageChannel();
    ports.set(frame, port1);
    port1.onmessage = ({ data }) => {
      origin = port1;
      for (const name of names) if (name in data.values) model.set(PREFIX + name, data.values[name]);
      model.save();
      origin = null;
    };
    const values = Object.fromEntries(names.map((name) => [name, value(name)]));
    frame.contentWindow.postMessage({ type: "sd-join", values }, "*", [port2]);
  };
  const hear = ({ source, data }) => {
    if (data?.type !== "sd-hello") return;
    const frame = frames().find((each) => each.contentWindow === source);
    if (frame) join(frame);
  };
  addEventListener("message", hear);
  for (const name of names)
    model.on(PREFIX + name, () => { for (const port of ports.values()) if (port !== origin) port.postMessage({ values: { [name]: value(name) } }); });
  frames().filter((frame) => frame.contentWindow).forEach(join); // those that said hello before anybody listened
  return () => { removeEventListener("message", hear); for (const port of ports.values()) port.close(); };
}

/** anywidget: the frames are the outputs that the program has displayed. */
function initialize({ model }) {
  const frames = () => [...document.querySelectorAll("iframe[data-sd]")].filter((frame) => frame.dataset.sd === model.get("token"));
  return connect({
    get: (name) => model.get(name),
    set: (name, value) => model.set(name, value),
    on: (name, fn) => model.on(`change:${name}`, fn),
    save: () => model.save_changes(),
  }, model.get("names"), frames);
}

/** Panel: one frame, made here. */
function render({ model }) {
  const box = document.createElement("div");
  box.innerHTML = model.frame_html; // our own markup (figures/notebook.py)
  const frame = box.firstElementChild;
  const end = connect({
    get: (name) => model[name],
    set: (name, value) => { model[name] = value; },
    on: (name, fn) => model.on(name, fn),
    save: () => {},
  }, model.names, () => [frame]);
  model.on("remove", end);
  return frame;
}
