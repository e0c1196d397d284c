"""Text to tokens and back: compared with transformers on the same files, and with what is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.errors import SdError
from kernels.tokenizer import Tokenizer
from tests.kernels.weights_world import TEMPLATE

TEXTS = [
    "the cat",
    "In 1984, 12345 people",
    "a\n\n1. one\n\n2. two",
    "x =  1 +  23\n\tif y:\n    return",
    "don't we'll",
    "中文，和 emoji 🙂👩‍👧 ok",
    "<|im_start|>user\nHi<|im_end|>\n",
    "",
    " ",
    "trailing  ",
]


def test_it_agrees_with_transformers_on_the_same_files(tiny: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tiny)
    ours = Tokenizer.from_folder(tiny)
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    for prompt in ("Hi", "多行\n文字", "{{ braces }} <|im_end|>"):
        for system in (None, "Answer in verse."):
            messages = [{"role": "user", "content": prompt}]
            if system:
                messages.insert(0, {"role": "system", "content": system})
            text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            assert ours.render_chat(prompt, system=system) == text
            assert ours.chat(prompt, system=system) == theirs.encode(text, add_special_tokens=False)
    # Templates are written over many lines, and loops are left early.
    theirs.chat_template = ours.chat_template = (
        "{{ bos_token }}\n{% for m in messages %}\n    {% if loop.index > 1 %}\n"
        "        {% break %}\n    {% endif %}\n{{ m | tojson }}\n{% endfor %}\n  end\n"
    )
    messages = [{"role": "user", "content": "é <b>"}]
    text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ours.render_chat("é <b>") == text
    assert ours.end_tokens == (theirs.eos_token_id,)
    assert ours.vocab_size == len(theirs)


def test_digits_are_cut_before_spaces_are_joined(tiny: Path) -> None:
    """What `tokenizer.ggml.pre = smollm` says, and a plain GPT-2 rule gets wrong."""
    tokenizer = Tokenizer.from_folder(tiny)
    pieces = [tokenizer.token_text(i) for i in tokenizer.encode("the\n\n12  3")]
    assert pieces == ["t", "he", "\n\n", "1", "2", "  ", "3"]


def test_bytes_of_tokens_join_to_the_text(tiny: Path) -> None:
    tokenizer = Tokenizer.from_folder(tiny)
    for text in TEXTS:
        assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()
    assert tokenizer.token_bytes(10**6) == b""
    assert "\ufffd" in tokenizer.token_text(tokenizer.encode("中")[0])
    assert tokenizer.special_tokens == {0, 1, 2}
    assert tokenizer.token_text(2) == "<|im_end|>"


def test_byte_fallback_vocabularies(tmp_path: Path) -> None:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    vocab = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}, "▁": 257, "a": 258}
    model = models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    text = "a a中🙂"
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.decode(ids) == text
    with pytest.raises(SdError) as caught:
        tokenizer.chat("Hi")
    assert caught.value.code == "no_chat_template"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"generation_config.json": {"eos_token_id": [5, 7]}, "config.json": {}}, (5, 7)),
        ({"config.json": {"eos_token_id": 5}}, (5,)),
        ({"tokenizer_config.json": {"eos_token": "<|im_end|>"}}, (2,)),
        ({"tokenizer_config.json": {"eos_token": {"content": "<|im_end|>"}}}, (2,)),
        ({}, ()),
    ],
)
def test_end_tokens(
    tiny: Path, tmp_path: Path, files: dict[str, dict[str, object]], expected: tuple[int, ...]
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tiny / "tokenizer.json").read_bytes())
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert Tokenizer.from_folder(tmp_path).end_tokens == expected


def test_templates_in_their_own_file_and_by_name(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tiny / "tokenizer.json").read_bytes())
    named = [{"name": "tool", "template": "no"}, {"name": "default", "template": TEMPLATE}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    expected = Tokenizer.from_folder(tiny).render_chat("Hi")
    assert Tokenizer.from_folder(tmp_path).render_chat("Hi") == expected
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content | tojson }}")
    assert Tokenizer.from_folder(tmp_path).render_chat("é") == '"é"'


def test_a_template_runs_in_a_sandbox(tiny: Path) -> None:
    tokenizer = Tokenizer.from_folder(tiny)
    tokenizer.chat_template = "{{ ''.__class__.__mro__ }}"
    with pytest.raises(Exception, match="unsafe"):
        tokenizer.chat("Hi")


def test_a_broken_or_absent_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SdError) as caught:
        Tokenizer.from_folder(tmp_path)
    assert caught.value.code == "unsupported_weights"
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SdError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.real_model
def test_the_default_models_template_and_tokens(embedded_folder: Path) -> None:
    """Against what the model's card documents, written out here by hand."""
    tokenizer = Tokenizer.from_folder(embedded_folder)
    assert tokenizer.render_chat("What is gravity?") == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.chat("What is gravity?")
    assert ids[0] == 1
    assert ids.count(2) == 2
    assert tokenizer.end_tokens == (2,)
    assert tokenizer.vocab_size == 49152
    pieces = [tokenizer.token_text(i) for i in tokenizer.encode("x\n\n1984")]
    assert pieces == ["x", "\n\n", "1", "9", "8", "4"]
