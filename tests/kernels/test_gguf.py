"""The converted folder holds the same model: compared with transformers' own reading of GGUF."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
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


def test_large_models_are_written_in_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    whole, sharded = tmp_path / "whole", tmp_path / "sharded"
    gguf_files.convert(tmp_path / "tiny.gguf", whole, source={"from": "x"})
    monkeypatch.setattr(gguf_files, "_SHARD_BYTES", 50_000)
    gguf_files.convert(tmp_path / "tiny.gguf", sharded, source={"from": "x"})
    files = storage.weight_files(sharded)
    assert len(files) > 1
    together = {name: value for file in files for name, value in load_file(file).items()}
    single = load_file(whole / "model.safetensors")
    assert together.keys() == single.keys()
    assert all(torch.equal(together[name], single[name]) for name in single)
    assert storage.parameter_count(sharded) == storage.parameter_count(whole)
    files[0].unlink()
    with pytest.raises(SdError, match="missing"):
        storage.check_folder(sharded)


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
