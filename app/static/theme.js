// Before the first paint: the colours that the address or the reader's last choice asks for.

(() => {
  let theme = new URLSearchParams(location.search).get("theme");
  if (!theme) try { theme = localStorage.getItem("sd:theme"); } catch { /* none saved */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
