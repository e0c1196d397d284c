// Play, pause, step, scrub. The time shown is a value of the model (private state), so a view that is
// rendered again goes on where it was. Driven by timestamps, paused off-screen and in hidden tabs;
// where the reader wants no motion, "play" goes straight to the end and stepping still works.

import { h, uid, stillness } from "#sd/dom.js";
import { button } from "#sd/controls.js";

/**
 * @param name      model value that holds the time (in the figure's own unit)
 * @param duration  () => end of the time
 * @param rate      () => units of time a second of real time
 * @param next      (t, direction) => time of the neighbouring step
 * @param element   pauses when it leaves the screen
 */
export function createPlayer(on, model, { name = "t", duration, rate, next, element }) {
  let handle = 0, last = 0, visible = true;
  const listeners = new Set();
  const say = () => { for (const fn of listeners) fn(); };
  const player = {
    get playing() { return handle !== 0; },
    get time() { return Math.min(model.get(name), duration()); },
    play() {
      if (handle) return;
      if (player.time >= duration()) model.set(name, 0);
      if (stillness()) { model.set(name, duration()); say(); return; }
      last = 0;
      handle = requestAnimationFrame(tick);
      say();
    },
    pause() { cancelAnimationFrame(handle); handle = 0; say(); },
    toggle() { handle ? player.pause() : player.play(); },
    seek(t) { model.set(name, Math.max(0, Math.min(duration(), t))); },
    step(direction) { player.pause(); player.seek(next(player.time, direction)); },
    restart() { player.seek(0); },
    /** Called whenever playing starts or stops. */
    onState(fn) { listeners.add(fn); fn(); },
  };
  function tick(now) {
    handle = requestAnimationFrame(tick);
    // A long gap means the tab was hidden or the figure was away: time does not jump.
    const elapsed = last && visible ? Math.min(now - last, 100) / 1000 : 0;
    last = now;
    const t = player.time + elapsed * rate();
    model.set(name, Math.min(t, duration()));
    if (t >= duration()) player.pause();
  }
  const observer = new IntersectionObserver((entries) => { visible = entries.at(-1).isIntersecting; });
  observer.observe(element);
  on.add(() => { observer.disconnect(); cancelAnimationFrame(handle); handle = 0; });
  return player;
}

/** The row of buttons of a player. `t(key)` gives interface words; `speeds` ties to the model value `speed`. */
export function transport(on, model, player, { t, name = "t", duration, format, speeds = null }) {
  const play = button(on, "", player.toggle, { primary: true });
  play.classList.add("sd-play");
  player.onState(() => { play.textContent = player.playing ? `❚❚ ${t("ui.pause")}` : `▶ ${t("ui.play")}`; });
  const id = uid("scrub");
  const scrub = h("input", { type: "range", id, min: 0, max: 1000, step: 1, "aria-label": t("ui.scrub") });
  on.listen(scrub, "input", () => { player.pause(); player.seek((Number(scrub.value) / 1000) * duration()); });
  on.listen(scrub, "keydown", (event) => {
    const direction = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (direction) { event.preventDefault(); player.step(direction); }
  });
  on.follow(model, "*", () => {
    scrub.value = duration() > 0 ? Math.round((player.time / duration()) * 1000) : 0;
    scrub.setAttribute("aria-valuetext", format(player.time));
  });
  let speed = null;
  if (speeds) {
    speed = h("select", { "aria-label": t("ui.speed") }, speeds.map((x) => h("option", { value: x }, `${x}×`)));
    on.listen(speed, "change", () => { model.set("speed", Number(speed.value)); model.save_changes(); });
    on.follow(model, "speed", () => { speed.value = model.get("speed"); });
  }
  return h("div", { class: "sd-transport", role: "group", "aria-label": t("ui.player") },
    play,
    button(on, "⟨", () => player.step(-1), { label: t("ui.step_back"), title: t("ui.step_back") }),
    button(on, "⟩", () => player.step(1), { label: t("ui.step"), title: t("ui.step") }),
    button(on, "⟲", () => { player.pause(); player.restart(); }, { label: t("ui.restart"), title: t("ui.restart") }),
    scrub, speed);
}
