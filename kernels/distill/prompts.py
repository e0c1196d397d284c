"""The prompt bank: templates × topics, and which topics are kept away from training.

A draft is judged on topics it has never seen. Holding out single answers would not do: thirty
templates ask about the same topic, and the answers share whole sentences.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kernels.distill.corpus import Corpus

HOLD_OUT_ONE_IN = 12


@dataclass(frozen=True)
class BankPrompt:
    """One prompt of the bank: `domain` is the kind of text it asks for, `template` the sentence
    with `{}` where the topic stands."""

    domain: str
    template: str
    topic: str

    @property
    def text(self) -> str:
        """What the user says."""
        return self.template.replace("{}", self.topic)


@cache
def _lines(name: str) -> tuple[str, ...]:
    text = files("kernels.distill").joinpath(name).read_text(encoding="utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def templates() -> tuple[tuple[str, str], ...]:
    """(domain, template) pairs; a line of the file is `domain | template`."""
    pairs = [line.split(" | ", 1) for line in _lines("templates.txt")]
    return tuple((domain, template) for domain, template in pairs)


def topics() -> tuple[str, ...]:
    """What the prompts are about."""
    return _lines("topics.txt")


def bank() -> list[BankPrompt]:
    """Every template with every topic, topic by topic."""
    return [BankPrompt(d, template, topic) for topic in topics() for d, template in templates()]


def is_held_out(topic: str) -> bool:
    """Whether the topic belongs to evaluation. Decided by a hash of its name alone, so that a
    topic added to the bank moves no other one across the line."""
    digest = hashlib.sha256(topic.encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "big") % HOLD_OUT_ONE_IN == 0


def chat_tokens(tokenizer: Any, text: str) -> tuple[int, ...]:
    """The token ids of one user message in the chat template, up to where the answer begins."""
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )
    return tuple(tokenizer(rendered, add_special_tokens=False)["input_ids"])


def find_prompts(tokenizer: Any, prompts: list[tuple[int, ...]]) -> list[BankPrompt]:
    """Which prompt of the bank each token sequence is. One that is not in the bank becomes a topic
    of its own, so that its answers still stay on one side of the split."""
    known = {chat_tokens(tokenizer, prompt.text): prompt for prompt in bank()}
    return [
        known.get(tokens) or BankPrompt("other", "{}", tokenizer.decode(list(tokens)))
        for tokens in prompts
    ]


def split(corpus: Corpus, tokenizer: Any) -> tuple[Corpus, Corpus]:
    """(to train on, held out), by topic."""
    prompts = find_prompts(tokenizer, corpus.prompts())
    held = [is_held_out(prompt.topic) for prompt in prompts]
    return (
        corpus.select([i for i, h in enumerate(held) if not h]),
        corpus.select([i for i, h in enumerate(held) if h]),
    )
