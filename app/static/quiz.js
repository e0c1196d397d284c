// The closing questions: a choice shows at once whether it is right, and why. Choices are kept for this tab, so
// that a change of language does not lose them.

const KEY = "sd:quiz";

const recall = () => { try { return JSON.parse(sessionStorage.getItem(KEY)) ?? {}; } catch { return {}; } };
const remember = (choices) => { try { sessionStorage.setItem(KEY, JSON.stringify(choices)); } catch { /* private mode: kept in the page */ } };
let choices = recall();

function mark(field, choice) {
  const answer = Number(field.dataset.answer);
  const verdict = field.querySelector(".quiz-verdict");
  verdict.textContent = choice === answer ? `✓ ${verdict.dataset.right}` : `✗ ${verdict.dataset.wrong}`;
  verdict.dataset.verdict = choice === answer ? "right" : "wrong";
  field.querySelectorAll("label").forEach((label, i) => {
    if (i === answer) label.dataset.verdict = "right";
    else if (i === choice) label.dataset.verdict = "wrong";
    else delete label.dataset.verdict;
  });
  field.querySelector("details").open = true;
}

/** Put the choices back after the words have changed. */
export function restoreQuiz() {
  for (const field of document.querySelectorAll("[data-question]")) {
    const choice = choices[field.dataset.question];
    const input = field.querySelectorAll("input")[choice];
    if (!input) continue;
    input.checked = true;
    mark(field, choice);
  }
}

document.addEventListener("change", ({ target }) => {
  const field = target.closest?.("[data-question]");
  if (!field || target.type !== "radio") return;
  choices = { ...choices, [field.dataset.question]: Number(target.value) };
  remember(choices);
  mark(field, Number(target.value));
});
