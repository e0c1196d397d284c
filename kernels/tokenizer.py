"""Text to tokens and back, from the files of a Hugging Face folder, without loading transformers.

transformers takes seconds to import; the `tokenizers` library under it takes milliseconds and is
what does the work anyway. Chat templates are Jinja; they come with the weights, so they run in a
sandbox.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tokenizers

from kernels.errors import SdError


class Tokenizer:
    """One model's tokenizer. `vocab_size` is the number of ids that mean something.

    The model's own vocabulary may be larger (padded to a round number); see `pairs.py`.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        end_tokens: tuple[int, ...] = (),
        chat_template: str | None = None,
        special: dict[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self.end_tokens = end_tokens
        self.chat_template = chat_template
        self._special = special or {}
        self.vocab_size = 1 + max(backend.get_vocab(with_added_tokens=True).values())

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read tokenizer.json and its companions; other kinds go through transformers.

        Raises SdError `unsupported_weights` when the folder has no tokenizer that can be read.
        """
        backend = _backend(folder)
        settings = _read_json(folder / "tokenizer_config.json")
        special = {
            name: value if isinstance(value, str) else value["content"]
            for name, value in settings.items()
            if name.endswith("_token") and (isinstance(value, str) or _has_content(value))
        }
        return cls(
            backend,
            end_tokens=_end_tokens(folder, backend, special.get("eos_token")),
            chat_template=_chat_template(folder, settings),
            special=special,
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, with the start token if this model wants one."""
        return list(self._backend.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens; special tokens such as the end token are left out."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=True))

    def chat(self, prompt: str, *, system: str | None = None) -> list[int]:
        """Token ids of a one-turn conversation, up to where the assistant begins to answer.

        Without `system` the template's own default applies. Raises SdError `no_chat_template` if
        the model has none (a base model).
        """
        # The template has placed the start token itself, so none is added.
        text = self.render_chat(prompt, system=system)
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def render_chat(self, prompt: str, *, system: str | None = None) -> str:
        """The text that `chat` encodes."""
        if self.chat_template is None:
            raise SdError(
                "no_chat_template",
                "This model has no chat template. Switch the chat template off to let it continue "
                "your text.",
            )
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": prompt})
        template = _environment().from_string(self.chat_template)
        return str(template.render(messages=messages, add_generation_prompt=True, **self._special))

    def token_text(self, token: int) -> str:
        """One token as a label: special tokens by name, half a character as U+FFFD."""
        return self.token_bytes(token).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for (UTF-8; may be part of a character).

        Ids without a meaning (padding) give b"".
        """
        piece = self._backend.id_to_token(token)
        if piece is None:
            return b""
        if token in self._added:
            return piece.encode()
        if self._byte_level:
            table = _byte_of_character()
            return bytes(table[c] for c in piece) if all(c in table for c in piece) else b""
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\u2581", " ").encode()

    @cached_property
    def special_tokens(self) -> frozenset[int]:
        """Ids that carry structure instead of text (start, end, roles)."""
        return frozenset(
            i for i, t in self._backend.get_added_tokens_decoder().items() if t.special
        )

    @cached_property
    def vocabulary(self) -> dict[int, str]:
        """Id → the tokenizer's own name of the token, added tokens included."""
        return {i: t for t, i in self._backend.get_vocab(with_added_tokens=True).items()}

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(json.loads(self._backend.to_str())["decoder"])


def _backend(folder: Path) -> tokenizers.Tokenizer:
    file = folder / "tokenizer.json"
    if file.exists():
        try:
            return tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise _unsupported(folder, f"tokenizer.json cannot be read ({error})") from error
    from transformers import AutoTokenizer

    try:
        slow = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # many kinds, all of which mean the same to the reader
        raise _unsupported(
            folder, f"it has no tokenizer.json, and transformers says: {error}"
        ) from error
    backend = getattr(slow, "backend_tokenizer", None)
    if backend is None:
        raise _unsupported(folder, "its tokenizer has no fast form")
    return backend


def _unsupported(folder: Path, reason: str) -> SdError:
    return SdError(
        "unsupported_weights",
        f"The tokenizer in {folder} cannot be used: {reason}. "
        "Choose weights with a tokenizer.json.",
        path=str(folder),
        reason=reason,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _has_content(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str)


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named ones
        template = {t["name"]: t["template"] for t in template}.get("default")
    return template


def _end_tokens(
    folder: Path, backend: tokenizers.Tokenizer, eos_token: str | None
) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        if isinstance(value, int):
            return (value,)
        if isinstance(value, list) and value:
            return tuple(value)
    known = backend.token_to_id(eos_token) if eos_token else None
    return () if known is None else (known,)


def _environment() -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


@cache
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes each byte as a printable character; this is the way back.

    Printable bytes stand for themselves, the other 68 take the code points from 256 on, in order
    (the encoding that GPT-2 introduced).
    """
    table: dict[str, int] = {}
    shifted = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            table[chr(byte)] = byte
        else:
            table[chr(256 + shifted)] = byte
            shifted += 1
    return table
