"""The arithmetic of `branch`: a loop that waits for its condition, and one that guesses it.

The loop, `n` iterations long:

    for x in values:
        if x >= 50: total += x      # the condition holds: T
        else:       skipped += 1    # it does not: N

**Timing model.** Two units, one that evaluates conditions and one that runs bodies. An
iteration starts when the one before it is certain (its body done, its guess confirmed). The
condition is known C after the start. Either branch takes B, a rollback R.

- Waiting: the body starts when the condition is known. An iteration takes C + B.
- Guessing, rightly: the body of the guessed branch starts with the condition; the iteration is over
  when both are done: max(C, B).
- Guessing, wrongly: known after C. What ran ahead is thrown away, the rollback takes R, then the
  other branch runs: C + R + B. That is the waiting loop's time plus R and nothing else: what was
  thrown away ran while the loop would have waited.

Making a guess takes no time. With k of n guesses right the loop takes
k·max(C, B) + (n − k)·(C + R + B), and guessing pays where the share of right guesses exceeds
R / (R + min(C, B)). A real processor keeps many guesses open at once and gains more; one at a time
is enough to see why guessing pays.

**The language model laid over it.** One pass of the target lasts C, one step of the draft c·C. A
round drafts up to m tokens, then one pass checks them all (taken to cost one plain pass, v = 1):
the leading right ones stay, the target supplies the next one, the rest is dropped. The draft stops
where the text would be full. Everything here is exact arithmetic, no measurement.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from figures.rng import Rng

#: Seed of the values that the loop reads: always the same, so that only the pattern changes them.
VALUES_SEED = 2
THRESHOLD = 50
MODES = ("hand", "draw", "taken", "onebit", "twobit")
PREDICTORS = ("taken", "onebit", "twobit")


@dataclass(frozen=True)
class Segment:
    """One bar of a timeline; start and end in units of time.

    `kind`: "condition", "body" (the branch that counts, after waiting), "ahead" (run ahead and
    kept), "wasted" (run ahead and thrown away), "rollback", "redo" (the other branch, after a
    rollback); for the language model "draft" and "pass". `index`: iteration, or position of the
    token, from 0. `fate` of a drafted token: "accepted", "rejected" or "dropped".
    """

    kind: str
    index: int
    start: float
    end: float
    fate: str = ""


@dataclass(frozen=True)
class Commit:
    """From `time` on, the loop's variables are certain to be `total` and `skipped`."""

    time: float
    total: int
    skipped: int


@dataclass(frozen=True)
class Emitted:
    """Token `index` is written at `time`; origin "target", "accepted", "supplied" or "bonus"."""

    index: int
    time: float
    origin: str


@dataclass(frozen=True)
class Lane:
    """One timeline: its bars, what it has to show for them, and when it ends."""

    segments: list[Segment]
    end: float
    commits: list[Commit] = field(default_factory=list)
    emitted: list[Emitted] = field(default_factory=list)


@dataclass(frozen=True)
class Scene:
    """Everything that the figure shows in one state."""

    outcomes: list[bool]
    values: list[int]
    guesses: list[bool]
    right: list[bool]
    memory: list[int]
    misses: dict[str, int]
    without: Lane
    guessing: Lane
    breakeven: float
    alone: Lane
    together: Lane


def outcomes(pattern: str, n: int) -> list[bool]:
    """Return how the condition turns out in `n` iterations: `pattern` over and over.

    T, t and 1 say that it holds, N, n and 0 that it does not; other characters are passed over, and
    a pattern with none of them is "T".
    """
    letters = [c in "Tt1" for c in pattern if c in "TtNn10"] or [True]
    return [letters[i % len(letters)] for i in range(n)]


def values_of(conditions: list[bool]) -> list[int]:
    """Return values from 0 to 99 that make the condition turn out so."""
    rng = Rng(VALUES_SEED)
    return [int(rng.uniform() * 50) + (THRESHOLD if holds else 0) for holds in conditions]


def predict(kind: str, conditions: list[bool]) -> tuple[list[bool], list[int]]:
    """Return a predictor's guesses, and what it remembered before each of them.

    "taken" remembers nothing and always guesses T. "onebit" remembers the last outcome. "twobit"
    counts up to 3 with each T and down to 0 with each N, and guesses T from 2 on: once settled, it
    takes two surprises to change its mind (J. E. Smith, 1981). Both start at the weakest memory
    that still guesses T (1 and 2).
    """
    memory = {"taken": 0, "onebit": 1, "twobit": 2}[kind]
    guesses, memories = [], []
    for holds in conditions:
        memories.append(memory)
        guesses.append(kind == "taken" or memory >= (1 if kind == "onebit" else 2))
        if kind == "onebit":
            memory = int(holds)
        elif kind == "twobit":
            memory = min(3, memory + 1) if holds else max(0, memory - 1)
    return guesses, memories


def misses_of(kind: str, conditions: list[bool]) -> int:
    """Return how many of a predictor's guesses are wrong."""
    guesses, _ = predict(kind, conditions)
    return sum(guess != holds for guess, holds in zip(guesses, conditions, strict=True))


def waiting(values: list[int], condition: float, body: float) -> Lane:
    """Return the loop that waits for every condition."""
    segments, commits = [], []
    t = 0.0
    total = skipped = 0
    for i, x in enumerate(values):
        segments.append(Segment("condition", i, t, t + condition))
        segments.append(Segment("body", i, t + condition, t + condition + body))
        t += condition + body
        total, skipped = step(total, skipped, x, x >= THRESHOLD)
        commits.append(Commit(t, total, skipped))
    return Lane(segments, t, commits)


def step(total: int, skipped: int, x: int, branch: bool) -> tuple[int, int]:
    """Run one branch of the loop's body on the variables and return them."""
    return (total + x, skipped) if branch else (total, skipped + 1)


def guessing(
    values: list[int], guesses: list[bool], condition: float, body: float, rollback: float
) -> Lane:
    """Return the loop that runs ahead on its guesses.

    The variables are computed as such a machine does: the guessed branch runs on a copy, and the
    copy counts only when the condition agrees; so a wrong guess can only cost time.
    """
    segments, commits = [], []
    t = 0.0
    total = skipped = 0
    for i, (x, guess) in enumerate(zip(values, guesses, strict=True)):
        ahead = step(total, skipped, x, guess)
        known = t + condition
        segments.append(Segment("condition", i, t, known))
        holds = x >= THRESHOLD
        if guess == holds:
            segments.append(Segment("ahead", i, t, t + body))
            t = max(known, t + body)
            total, skipped = ahead
        else:
            segments.append(Segment("wasted", i, t, min(known, t + body)))
            if rollback > 0:
                segments.append(Segment("rollback", i, known, known + rollback))
            segments.append(Segment("redo", i, known + rollback, known + rollback + body))
            t = known + rollback + body
            total, skipped = step(total, skipped, x, holds)
        commits.append(Commit(t, total, skipped))
    return Lane(segments, t, commits)


def breakeven(condition: float, body: float, rollback: float) -> float:
    """Return the share of right guesses above which guessing pays: R / (R + min(C, B))."""
    return rollback / (rollback + min(condition, body))


def alone(n: int, condition: float) -> Lane:
    """Return the target writing `n` tokens, one pass each."""
    segments = [Segment("pass", i, i * condition, (i + 1) * condition) for i in range(n)]
    emitted = [Emitted(i, (i + 1) * condition, "target") for i in range(n)]
    return Lane(segments, n * condition, emitted=emitted)


def together(right: list[bool], condition: float, m: int, c: float) -> Lane:
    """Return draft and target writing as many tokens; the target would accept i if `right[i]`."""
    segments: list[Segment] = []
    emitted: list[Emitted] = []
    t = 0.0
    at = 0
    while at < len(right):
        drafted = min(m, len(right) - at - 1)
        kept = 0
        while kept < drafted and right[at + kept]:
            kept += 1
        for j in range(drafted):
            fate = "accepted" if j < kept else "rejected" if j == kept else "dropped"
            segments.append(Segment("draft", at + j, t, t + c * condition, fate))
            t += c * condition
        segments.append(Segment("pass", at, t, t + condition))
        t += condition
        emitted += [Emitted(at + j, t, "accepted") for j in range(kept)]
        last = "target" if drafted == 0 else "bonus" if kept == drafted else "supplied"
        emitted.append(Emitted(at + kept, t, last))
        at += kept + 1
    return Lane(segments, t, emitted=emitted)


def scene(
    *,
    n: int,
    pattern: str,
    mode: str,
    wrong: int,
    accuracy: float,
    seed: int,
    condition: int,
    body: int,
    rollback: int,
    m: int,
    c: float,
) -> Scene:
    """Return everything that the figure shows.

    Args:
        n: iterations. pattern: see `outcomes`.
        mode: who guesses: "hand" (bit i of `wrong` says that guess i is wrong), "draw" (each guess
            is right with probability `accuracy`, drawn with `seed`), or a predictor.
        condition, body, rollback: C, B and R in units of time.
        m, c: drafted tokens a round; time of a draft step in passes of the target.
    """
    conditions = outcomes(pattern, n)
    values = values_of(conditions)
    memory: list[int] = []
    if mode == "hand":
        guesses = [holds != bool(wrong >> i & 1) for i, holds in enumerate(conditions)]
    elif mode == "draw":
        rng = Rng(seed)
        guesses = [holds == (rng.uniform() < accuracy) for holds in conditions]
    else:
        guesses, memory = predict(mode, conditions)
    right = [guess == holds for guess, holds in zip(guesses, conditions, strict=True)]
    return Scene(
        outcomes=conditions,
        values=values,
        guesses=guesses,
        right=right,
        memory=memory,
        misses={kind: misses_of(kind, conditions) for kind in PREDICTORS},
        without=waiting(values, condition, body),
        guessing=guessing(values, guesses, condition, body, rollback),
        breakeven=breakeven(condition, body, rollback),
        alone=alone(n, condition),
        together=together(right, condition, m, c),
    )
