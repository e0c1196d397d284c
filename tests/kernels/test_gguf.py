"""The converted folder holds the same model: compared with transformers' own reading of GGUF."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from kernels import gguf_files, storage
from kernels.errors import SdError
from kernels.tokenizer import Tokenizer
from tests.kernels.weights_world import write_gguf


@pytest.mark.parametrize(("architecture", "pre"), [("llama", "smollm"), ("qwen2", "qwen2")])
def test_weights_and_logits_are_those_that_transformers_reads(
    tmp_path: Path, architecture: str, pre: str
) -> None:
    from transformers import AutoModelForCausalLM

    write_gguf(tmp_path / "tiny.gguf", architecture=architecture, pre=pre)
    folder = tmp_path / "out"
    steps: list[tuple[str, int, int]] = []
    gguf_files.convert(
        tmp_path / "tiny.gguf",
        folder,
        source={"from": "tiny.gguf"},
        progress=lambda *step: steps.append(step),
    )
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
    )
    expected = {name: value.bfloat16() for name, value in theirs.state_dict().items()}
    ours = load_file(folder / "model.safetensors")
    assert set(expected) - set(ours) == {"lm_head.weight"}  # tied
    for name, value in ours.items():
        assert torch.equal(value, expected[name]), name
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = torch.tensor([[1, 50, 60, 70, 80]])
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.bfloat16())
        assert torch.allclose(loaded(tokens).logits, theirs(tokens).logits, atol=1e-5)
    config = json.loads((folder / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5
    assert steps[-1] == ("convert", len(ours), len(ours))
    storage.check_folder(folder, full=True)


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("qwen2", "ab 123", ["a", "b", " ", "1", "2", "3"]),
        ("llama-bpe", "the\n\n12", ["t", "he", "\n\n", "1", "2"]),
        ("gpt-2", "the\n\n12", ["t", "he", "\n", "\n", "1", "2"]),
    ],
)
def test_the_rule_named_by_the_file_cuts_the_text(
    tmp_path: Path, pre: str, text: str, pieces: list[str]
) -> None:
    write_gguf(tmp_path / "tiny.gguf", pre=pre)
    gguf_files.convert(tmp_path / "tiny.gguf", tmp_path / "out", source={"from": "x"})
    tokenizer = Tokenizer.from_folder(tmp_path / "out")
    assert [tokenizer.token_text(i) for i in tokenizer.encode(text)] == pieces


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "strange.gguf", pre="martian")
    with pytest.raises(SdError, match="martian") as caught:
        gguf_files.convert(tmp_path / "strange.gguf", tmp_path / "out", source={"from": "x"})
    assert caught.value.code == "unsupported_weights"
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.part").exists()

    writer = gguf.GGUFWriter(tmp_path / "mamba.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(SdError, match="mamba"):
        gguf_files.convert(tmp_path / "mamba.gguf", tmp_path / "out", source={"from": "x"})


@pytest.mark.real_model
def test_the_default_model_has_its_parameters(embedded_folder: Path) -> None:
    assert storage.parameter_count(embedded_folder) == 134_515_008


def test_rounding_to_bfloat16_is_torchs() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    ties = (np.arange(2_000, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[np.isfinite(values)]
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(gguf_files._bfloat16(values), expected)
