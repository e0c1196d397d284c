// The work sheet's pictures. Each figure is mounted in the state that the address names, out of sight and at its
// natural size; when it has drawn everything, a still copy of it is scaled to its place on the sheet.

import { stateIn } from "#sd/model.js";
import { modelOf, mount, worded } from "#sd/mount.js";

const boot = JSON.parse(document.getElementById("boot").textContent);
const parameters = new URLSearchParams(location.search);
/** Width in which a figure is laid out, in CSS pixels: less makes larger letters. */
const WIDTH = { race: 640, tiles: 620, lossless: 720, mask: 640 };
const USUAL = 540;
/** Their picture fills the width; what does not fit below is left out. */
const CROPPED = new Set(["roofline", "speedup"]);
/** Paper has finer dots than a screen: what is drawn into a canvas gets this many per CSS pixel. */
const FINE = 3;
const QUIET = 6, LOOKS = 250; // a figure has settled after so many looks without a change; looks at most
Object.defineProperty(window, "devicePixelRatio", { configurable: true, get: () => FINE });

/** All canvases below a node, those in shadow trees too. */
function canvases(node) {
  return [...node.querySelectorAll("*")].flatMap((x) => [...(x.localName === "canvas" ? [x] : []), ...(x.shadowRoot ? canvases(x.shadowRoot) : [])]);
}

/** Wait until the figure neither grows nor draws any more; a chart has to be there. */
async function settled(figure, chart) {
  let last = "", quiet = 0;
  for (let i = 0; i < LOOKS && quiet < QUIET; i++) {
    await new Promise((done) => setTimeout(done, 120));
    const now = `${figure.offsetHeight} ${figure.querySelectorAll("*").length} ${canvases(figure).map((c) => `${c.width}x${c.height}`)}`;
    quiet = now === last && figure.offsetHeight > 0 && (!chart || canvases(figure).length > 0) ? quiet + 1 : 0;
    last = now;
  }
}

/** A copy that nothing moves: canvases become images, a chart's shadow tree the images in it. */
function still(figure) {
  const copy = figure.cloneNode(true);
  const image = (canvas) => {
    const made = new Image();
    made.src = canvas.toDataURL();
    made.alt = "";
    return made;
  };
  const originals = [...figure.querySelectorAll("*")], copies = [...copy.querySelectorAll("*")];
  originals.forEach((original, i) => {
    if (original.localName === "canvas") {
      const made = image(original);
      Object.assign(made.style, { width: `${original.clientWidth}px`, height: `${original.clientHeight}px` });
      copies[i].replaceWith(made);
    } else if (original.shadowRoot) {
      const home = original.getBoundingClientRect();
      Object.assign(copies[i].style, { position: "relative", display: "block", width: `${home.width}px`, height: `${home.height}px` });
      copies[i].replaceChildren(...canvases(original.shadowRoot).map((canvas) => {
        const made = image(canvas), box = canvas.getBoundingClientRect();
        Object.assign(made.style, { position: "absolute", left: `${box.left - home.left}px`, top: `${box.top - home.top}px`, width: `${box.width}px`, height: `${box.height}px` });
        return made;
      }));
    }
  });
  return copy;
}

async function draw(box) {
  const spec = worded(boot.figures[box.dataset.figure], boot.strings);
  const bench = document.createElement("div");
  bench.className = "ws-bench ws-figure";
  bench.inert = true;
  bench.style.width = `${WIDTH[spec.id] ?? USUAL}px`;
  document.body.append(bench);
  const end = await mount(spec, modelOf(spec, { state: stateIn(parameters, spec), extras: { base: boot.base } }), bench);
  await settled(bench, Boolean(spec.chart));
  const [width, height] = [bench.offsetWidth, bench.offsetHeight];
  const picture = document.createElement("div");
  picture.style.width = `${width}px`;
  picture.append(still(bench.firstElementChild));
  box.replaceChildren(picture);
  const across = box.clientWidth / width, down = box.clientHeight / height;
  picture.style.transform = `scale(${CROPPED.has(spec.id) ? across : Math.min(across, down)})`;
  end();
  bench.remove();
}

const source = document.querySelector(".ws-source");
source.textContent = source.dataset.text.replace("{url}", new URL(boot.base || "/", location.href).href);

for (const control of document.querySelectorAll("[data-set]")) {
  control.addEventListener(control.matches("input") ? "change" : "click", (event) => {
    event.preventDefault();
    const [name, value = control.checked ? "1" : null] = control.dataset.set.split("=");
    value === null ? parameters.delete(name) : parameters.set(name, value);
    location.search = parameters;
  });
}
document.querySelector(".ws-print").addEventListener("click", () => print());

await Promise.all([...document.querySelectorAll(".ws-picture")].map(draw));
document.documentElement.dataset.ready = "true";
