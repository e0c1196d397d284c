// The way in: opens the language that the address names (`?lang=zh`), or the first one of the browser's that there
// is. Without this script the page offers both.

const order = [new URLSearchParams(location.search).get("lang"), ...(navigator.languages ?? [])];
addEventListener("DOMContentLoaded", () => {
  const links = new Map([...document.querySelectorAll("[data-choice]")].map((link) => [link.dataset.choice, link.href]));
  const chosen = order.map((tag) => tag?.split("-")[0].toLowerCase()).find((tag) => links.has(tag)) ?? "en";
  location.replace(`${links.get(chosen)}${location.search}${location.hash}`);
});
