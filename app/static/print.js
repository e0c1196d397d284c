// Before the page goes to paper: a figure keeps the layout that it has on the screen and is scaled as a whole, links
// get numbers and their addresses a list at the end, and colours are those of the light theme.

/** Width of the text on A4 and Letter with our margins, in CSS pixels: a little less than either has. */
const WIDTH = 660;
/** Height that a figure may take, so that it stands on one page. */
const HEIGHT = 900;
/** What print.css leaves out of a figure, as far as it takes room. */
const UNPRINTED = ".sd-try, .sd-bet, .sd-shared, .sd-notes, .sd-controls, .sd-foot, .sd-panel, .sd-transport, .sd-stage .sd-control, .sd-stage .sd-toggle, .rc-choice, .rc-play";

const root = document.documentElement;
let theme;

function number() {
  const notes = document.querySelector(".print-notes");
  if (!notes) return;
  const found = new Map();
  for (const link of document.querySelectorAll('main a[href^="http"]')) {
    if (!found.has(link.href)) found.set(link.href, found.size + 1);
    link.dataset.note = found.get(link.href);
  }
  notes.querySelector("ol").replaceChildren(...[...found.keys()].map((href) => {
    const item = document.createElement("li");
    item.textContent = decodeURI(href);
    return item;
  }));
  notes.hidden = found.size === 0;
}

addEventListener("beforeprint", () => {
  theme = root.dataset.theme;
  root.dataset.theme = "light";
  for (const figure of document.querySelectorAll(".sd-figure")) {
    const width = figure.offsetWidth;
    if (width === 0) continue;
    figure.style.setProperty("--print-width", `${width}px`);
    const off = [...figure.querySelectorAll(UNPRINTED)].filter((x) => !x.parentElement.closest(UNPRINTED));
    const height = figure.offsetHeight - off.reduce((sum, x) => sum + x.offsetHeight, 0);
    figure.style.setProperty("--print-zoom", Math.min(1, WIDTH / width, HEIGHT / height));
  }
  number();
});
addEventListener("afterprint", () => { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; });

// The work sheet shows the figures as they stand here.
const sheet = document.querySelector("[data-worksheet]");
sheet?.addEventListener("click", () => {
  const url = new URL(sheet.dataset.worksheet, location.href);
  for (const [name, value] of new URLSearchParams(location.search)) if (name.includes(".")) url.searchParams.append(name, value);
  url.searchParams.set("lang", root.dataset.lang);
  sheet.href = url.href;
});
