"""T10: streamed pieces join to the text of all tokens, in order, with no broken characters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from kernels.text import Detokenizer
from kernels.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"

TEXTS = [
    "Plain English, with  double spaces\nand lines.\n\n",
    "推测解码让大模型说得更快，而且一个字都不会变。",
    "日本語と한국어と中文を混ぜる。",
    "👩‍👩‍👧‍👦 family, 🇨🇳 flag, 👍🏽 skin tone, e\u0301 combining",
    "𝕬𝖓𝖈𝖎𝖊𝖓𝖙 𒀀 cuneiform",
    "  leading and trailing  ",
    "a real \ufffd mark in the middle, and at the end \ufffd",
]


def byte_level() -> Tokenizer:
    """As in GPT-2, Llama 3, Qwen, SmolLM: almost no merges, so characters fall into bytes."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the quick brown fox 中文"] * 3, trainer)
    return Tokenizer(backend)


def byte_fallback() -> Tokenizer:
    """As in Llama 2 and Mistral: words begin with ▁, unknown characters are single bytes."""
    pieces = ["<unk>", "<end>", *(f"<0x{i:02X}>" for i in range(256)), "▁", *"abcdehinlost,."]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<end>"])
    return Tokenizer(backend)


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}


def pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.push(token) for token in tokens), stream.flush()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_join_to_the_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode(text)
    assert len(tokens) > len(text) // 8
    got = pieces(tokenizer, tokens)
    # In the middle of a text: some tokenizers drop the space before its first word.
    before = tokenizer.encode("a")
    assert "".join(got) == tokenizer.decode(before + tokens)[1:]
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in piece for piece in got)
        assert got[-1] == "", "nothing is held back once characters are complete"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_without_spaces_does_not_lag(name: str) -> None:
    """transformers #36708: each character is out with the token that completes it."""
    tokenizer = TOKENIZERS[name]
    text = "一二三四五六七八九十"
    stream, shown, sent = Detokenizer(tokenizer), "", b""
    for token in tokenizer.encode(text):
        shown += stream.push(token)
        sent += tokenizer.token_bytes(token)
        assert shown == sent.decode(errors="ignore")
    assert shown.strip() == text


@given(tokens=st.lists(st.integers(0, 299), max_size=40))
def test_any_tokens_at_all(tokens: list[int]) -> None:
    """Models can say anything, broken bytes too: the stream is as broken as the text, no more."""
    tokenizer = TOKENIZERS["byte level"]
    assert "".join(pieces(tokenizer, tokens)) == tokenizer.decode(tokens)


def test_an_unfinished_character_shows_at_the_end_only() -> None:
    tokenizer = TOKENIZERS["byte level"]
    tokens = tokenizer.encode("好👍")[:-1]
    got = pieces(tokenizer, tokens)
    assert "".join(got[:-1]) == "好"
    assert got[-1] == REPLACEMENT


def test_a_fork_leaves_the_stream_alone() -> None:
    tokenizer = TOKENIZERS["byte level"]
    tokens = tokenizer.encode("速い狐")
    stream, shown = Detokenizer(tokenizer), ""
    for token in tokens:
        fork = stream.fork()
        fork.push(5)
        fork.push(200)
        shown += stream.push(token)
    assert shown + stream.flush() == "速い狐"


def test_special_tokens_have_no_text() -> None:
    tokenizer = TOKENIZERS["byte level"]
    (end,) = tokenizer.special_tokens
    tokens = tokenizer.encode("好")
    assert "".join(pieces(tokenizer, [end, tokens[0], end, *tokens[1:], end])) == "好"


@pytest.mark.real_model
def test_the_real_tokenizer(embedded_folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(embedded_folder)
    for text in TEXTS:
        tokens = tokenizer.encode(text)
        stream = Detokenizer(tokenizer)
        got = [stream.push(token) for token in tokens]
        assert "".join(got) + stream.flush() == tokenizer.decode(tokens) == text
