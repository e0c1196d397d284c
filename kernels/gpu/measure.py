"""What `gpu-check` measures: decoding, equality of rows, the fused rule, a race."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels import memory
from kernels.acceptance import Guess, judge_sampled
from kernels.checkpoint import Checkpoint, Stored
from kernels.gpu.graphs import PADDED, GraphDecoder
from kernels.packed import PackedDecoder
from kernels.pairs import Pair
from kernels.probe import probe
from kernels.race import race
from kernels.sampling import distribution
from kernels.settings import Settings

_CONTEXT = 200
_LLAMA = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "eos_token_id": 2}
#: Published shapes: SmolLM2-135M and Llama-2-7B.
SHAPES: dict[str, dict[str, Any]] = {
    "135M": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "7B": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    },
}


class _NoCheckpoint(Checkpoint):
    """Has every tensor that is asked for, of any shape, and no numbers."""

    def __init__(self, tied: bool) -> None:
        self._tied = tied

    def __contains__(self, name: object) -> bool:
        return name == "lm_head.weight" and not self._tied

    def expect(self, name: str, shape: tuple[int, ...]) -> Stored:
        return Stored(name, "BF16", np.broadcast_to(np.uint16(0), shape))


class RandomDecoder(PackedDecoder):
    """A decoder of a given shape with random weights, made on the device: N(0, 0.02²), norms 1.

    Never zeros: multiplying zeros takes less power, so a GPU does it faster.
    """

    def __init__(self, shape: dict[str, Any], device: str) -> None:
        """shape: entries of a config.json. Raises SdError `not_enough_memory`."""
        self._shape = shape
        width, ffn = shape["hidden_size"], shape["intermediate_size"]
        layer = 4 * width * width + 3 * width * ffn
        parameters = shape["num_hidden_layers"] * layer + 2 * width * shape["vocab_size"]
        memory.require(2 * parameters + (2 << 30), "This model of random weights", device)
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            config = json.dumps(_LLAMA | shape)
            (Path(folder) / "config.json").write_text(config, "utf-8")
            super().__init__(Path(folder), device=device, precision="bf16")

    def _open(self, folder: Path) -> Checkpoint:
        return _NoCheckpoint(self._shape["tie_word_embeddings"])

    def _tensor(self, stored: Stored) -> Tensor:
        tensor = torch.empty(stored.data.shape, dtype=self._dtype, device=self.device)
        return tensor.normal_(0, 0.02)

    def _vector(self, checkpoint: Checkpoint, name: str, size: int) -> Tensor:
        return torch.ones(size, device=self.device)


def decoding(
    model: PackedDecoder,
    bandwidth: float,
    *,
    passes: int = 100,
    make: Callable[..., GraphDecoder] = GraphDecoder,
) -> dict[str, Any]:
    """How long a pass takes, and which share of `bandwidth` (B/s) plain decoding reaches.

    `padded` is what the engine does; `one_row` is what a graph of a single row would reach: the
    honest rival for claims about speed. `device` leaves out the copies and the host. Shares above 1
    can happen where the weights fit into the cache.
    """
    result: dict[str, Any] = {"weight_bytes": model.weight_bytes, "context": _CONTEXT}
    ids = _tokens(model.vocab_size, _CONTEXT)
    for name, padded in (("padded", PADDED), ("one_row", (1, *PADDED[1:]))):
        decoder = make(model, padded=padded)
        cache = decoder.new_cache(_CONTEXT + 17)
        decoder.forward(ids, cache, last_only=True)

        def one(count: int, decoder: GraphDecoder = decoder, cache: Any = cache) -> float:
            cache.rollback(_CONTEXT)
            start = time.perf_counter()
            decoder.forward(ids[:count], cache)
            return time.perf_counter() - start

        seconds = statistics.median(one(1) for _ in range(passes))
        graph, start = cache.storage.graph(1), time.perf_counter()
        for _ in range(passes):
            graph.replay()
        decoder.backend.wait()
        device = (time.perf_counter() - start) / passes
        result[name] = {
            "rows": graph.rows,
            "pass_s": seconds,
            "device_s": device,
            "plain_tokens_per_s": 1 / seconds,
            "share_of_bandwidth": model.weight_bytes / seconds / bandwidth,
            "device_share_of_bandwidth": model.weight_bytes / device / bandwidth,
        }
        if name == "padded":
            verify = {n: statistics.median(one(n) for _ in range(passes)) for n in (2, 5, 9, 17)}
            result["verify_cost"] = {str(n): value / seconds for n, value in verify.items()}
            result |= equality(decoder)
        del cache, decoder, graph, one
    return result


def equality(decoder: GraphDecoder, length: int = 64) -> dict[str, Any]:
    """Whether rows verified together have the bits of rows decoded one by one.

    The probe's verdict, then `length` greedy tokens read again in blocks: rows that differ in any
    bit, and rows whose most probable token differs.
    """
    found = probe(decoder)
    prompt = _tokens(decoder.vocab_size, 20)
    cache = decoder.new_cache(len(prompt) + length)
    rows = [decoder.forward(prompt, cache, last_only=True)[-1]]
    text: list[int] = []
    for _ in range(length - 1):
        text.append(int(rows[-1].argmax()))
        rows.append(decoder.forward([text[-1]], cache)[-1])
    alone = np.stack(rows[1:])
    differing = flipped = compared = 0
    for block in (2, 5, 9, 17):
        cache.rollback(len(prompt))
        parts = [text[start : start + block] for start in range(0, len(text), block)]
        together = np.concatenate([decoder.forward(part, cache) for part in parts])
        differing += int((together.view(np.uint32) != alone.view(np.uint32)).any(1).sum())
        flipped += int((together.argmax(1) != alone.argmax(1)).sum())
        compared += len(alone)
    return {
        "guarantee": found.kind,
        "largest_difference": found.difference,
        "rows_compared": compared,
        "rows_differing": differing,
        "argmax_flipped": flipped,
    }


def acceptance(
    device: str, *, vocabulary: int = 49152, m: int = 4, blocks: int = 200
) -> dict[str, Any]:
    """The fused rule against the host's: how many verdicts differ, and both times of a block.

    The host's time includes bringing the logits over, the kernel's bringing its result.
    """
    from kernels.gpu.acceptance_kernel import judge

    random = np.random.default_rng(0)
    settings = Settings("x", temperature=1.0)
    differing, fused, host = 0, [], []
    for number in range(blocks):
        torch.manual_seed(number)
        target = 3 * torch.randn(m + 1, vocabulary, device=device)
        draft = target[:m] + 0.5 * torch.randn(m, vocabulary, device=device)
        gumbel = -torch.log(-torch.log(torch.rand(m, vocabulary, device=device)))
        tokens = (draft + gumbel).argmax(-1).tolist()
        accept, replace = random.random(m).tolist(), random.random(m + 1).tolist()
        guesses = [Guess(token, None, "model") for token in tokens]
        start = time.perf_counter()
        found = judge(guesses, target, draft, accept, replace, 1.0)
        middle = time.perf_counter()
        p, q = target.cpu().numpy(), draft.cpu().numpy()
        guesses = [
            Guess(token, distribution(row, settings), "model")
            for token, row in zip(tokens, q, strict=True)
        ]
        expected = judge_sampled(
            guesses,
            lambda i, p=p: distribution(p[i], settings),  # type: ignore[misc]
            accept.__getitem__,
            replace.__getitem__,
            replace.__getitem__,
        )
        end = time.perf_counter()
        mine = [(place.token, place.origin) for place in found.places]
        differing += mine != [(place.token, place.origin) for place in expected.places]
        if number:  # the first one compiles
            fused.append(middle - start)
            host.append(end - middle)
    return {
        "vocabulary": vocabulary,
        "m": m,
        "blocks": blocks,
        "differing": differing,
        "fused_s": statistics.median(fused),
        "host_s": statistics.median(host),
    }


def racing(pair: Pair, prompts: Sequence[str], length: int = 128, m: int = 4) -> dict[str, Any]:
    """Greedy and sampled races: agreement, speed-up, and each lane's share outside its passes."""
    rows = []
    for temperature in (0.0, 1.0):
        for prompt in prompts:
            settings = Settings(prompt, length=length, m=m, temperature=temperature)
            for _ in race(pair, settings):  # caches, graphs, compilation
                pass
            start = time.perf_counter()
            events = list(race(pair, settings))
            wall = time.perf_counter() - start
            clocks = {e["lane"]: e["clock"] for e in events if e["type"] == "finish"}
            passes = dict.fromkeys(clocks, 0.0)
            for event in events:
                if event["type"] == "pass":
                    passes[event["lane"]] += event["end"] - event["start"]
            rows.append(
                {
                    "prompt": prompt,
                    "temperature": temperature,
                    "agreement": events[-1]["agreement"],
                    "stats": events[-1]["stats"],
                    "overhead": {lane: 1 - passes[lane] / clocks[lane] for lane in clocks},
                    "outside_the_lanes": 1 - sum(clocks.values()) / wall,
                }
            )
    greedy = [row for row in rows if not row["temperature"]]
    return {
        "pair": pair.name,
        "guarantee": pair.guarantee,
        "m": m,
        "length": length,
        "greedy_identical": all(row["agreement"]["kind"] == "identical" for row in greedy),
        "races": rows,
    }


def _tokens(vocabulary: int, count: int) -> list[int]:
    """Ids spread over the vocabulary; any tokens do."""
    return [(7919 * (i + 1)) % vocabulary for i in range(count)]
