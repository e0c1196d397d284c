// Our figures in your page. See docs/embedding.md.
(() => {
  const all = (tag) => [...document.querySelectorAll(`${tag}.sd-embed`)];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const root = document.documentElement;

  // Is what it stands on dark?
  const dark = (e) => {
    for (; e; e = e.parentElement) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = getComputedStyle(e).backgroundColor;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      if (a > 127) return r + 2 * g + b < 512;
    }
    return system.matches && /dark/.test(getComputedStyle(root).colorScheme);
  };
  const tell = (f) => f.contentWindow.postMessage({ type: "sd-theme", theme: dark(f) ? "dark" : "light" }, "*");
  const changed = () => setTimeout(() => all("iframe").forEach(tell), 250);

  addEventListener("message", ({ source, origin, data }) => {
    const f = all("iframe").find((x) => x.contentWindow === source);
    if (!f || origin !== new URL(f.src).origin || data?.type !== "sd-height" || !(data.height > 0)) return;
    f.style.height = `${Math.min(5000, data.height)}px`;
    if (!f.told) tell(f);
    f.told = 1;
  });

  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target: a } of seen) {
      if (!isIntersecting) continue;
      const f = document.createElement("iframe");
      Object.assign(f, { className: "sd-embed", title: a.textContent, src: a.href });
      f.style.cssText = "border:0;width:100%;height:640px";
      a.replaceWith(f);
    }
  }, { rootMargin: "100%" });
  for (const a of all("a")) {
    a.style.cssText = "display:grid;place-items:center;height:640px;outline:1px solid";
    near.observe(a);
  }

  for (const e of [root, document.body]) new MutationObserver(changed).observe(e, { attributes: true });
  system.onchange = changed;
  changed();
})();
