"""The distillation on a tiny random target: seconds, no download.

Long file: every test continues from the one small corpus and run that the fixtures make.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernels.distill import corpus as corpora
from kernels.distill import loss as losses
from kernels.distill.corpus import Corpus, CorpusError
from kernels.distill.draft import Draft, start_from_target
from kernels.distill.evaluate import Judge, acceptance, choose, tokens_per_pass
from kernels.distill.export import load_draft, save_draft, save_transformers
from kernels.distill.generate import generate, write
from kernels.distill.muon import orthogonalized
from kernels.distill.prompts import bank, find_prompts, is_held_out, split, topics
from kernels.distill.train import TrainSettings, rate_factor, score, train

VOCABULARY, END = 61, 2
ENDS = (END, 7, 11, 19, 23)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads on products this small only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def target() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=END,
        initializer_range=0.5,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        # One dimension that is large for every token, as trained models have.
        model.model.embed_tokens.weight[:, 0] = 4.0
    return model


@pytest.fixture(scope="module")
def text(target: Any) -> Corpus:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, VOCABULARY, size=n).tolist() for n in rng.integers(2, 6, size=24)]
    warmth = [0.0, 0.6, 0.8, 1.0] * 6
    return write(target, prompts, warmth, length=12, end_tokens=ENDS, seed=1)


class WordTokenizer:
    """Enough of a tokenizer for the prompt bank: one id a word, the message as its own template."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return f"user: {messages[0]['content']} assistant:"

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [self.words.setdefault(w, len(self.words)) for w in text.split()]}

    def decode(self, tokens: list[int]) -> str:
        names = {v: k for k, v in self.words.items()}
        return " ".join(names.get(t, "?") for t in tokens)


def small_draft(target: Any, text: Corpus, rows: int = 40) -> Draft:
    return start_from_target(target, (0, 1), corpora.frequent_tokens(text, rows, always=[END]))


# The text.


def test_recorded_probabilities_are_the_targets_own(target: Any, text: Corpus) -> None:
    for i in (0, 1, 5, 23):
        batch = corpora.make_batch(text, [i])
        with torch.no_grad():
            p = target(torch.from_numpy(batch.input_ids)).logits[0].softmax(1)
        best, ids = p[torch.from_numpy(batch.rows)].topk(text.top_ids.shape[1], dim=1)
        assert (ids.numpy() == batch.top_ids).all()
        np.testing.assert_allclose(best, batch.top_p, atol=1e-3)


def test_greedy_answers_are_what_transformers_generates(target: Any, text: Corpus) -> None:
    for i in range(0, 24, 4):
        prompt = torch.tensor([text.prompts()[i]])
        theirs = target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=list(ENDS),
        )[0, prompt.shape[1] :]
        assert theirs.tolist() == text.answer(i).tolist()


def test_some_answers_end_early_and_none_goes_on_after_the_end(text: Corpus) -> None:
    lengths = [len(text.answer(i)) for i in range(len(text))]
    assert min(lengths) < 12 == max(lengths)
    for i in range(len(text)):
        assert not np.isin(text.answer(i)[:-1], ENDS).any()
        assert len(text.answer(i)) == 12 or text.answer(i)[-1] in ENDS


def test_corpus_survives_the_disk_and_joins(text: Corpus, tmp_path: Path) -> None:
    text.save(tmp_path / "a.npz")
    both = corpora.join([corpora.load(tmp_path / "a.npz"), text.select([3, 1])])
    assert len(both) == 26
    assert both.answer(24).tolist() == text.answer(3).tolist()
    assert both.prompt(25).tolist() == text.prompt(1).tolist()
    rows = both.answer_rows(24)
    np.testing.assert_array_equal(both.top_ids[rows], text.top_ids[text.answer_rows(3)])


def test_a_corpus_that_does_not_fit_together_is_refused(text: Corpus, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="do not fit"):
        dataclasses.replace(text, tokens=text.tokens[:-1])
    with pytest.raises(CorpusError, match="distill generate"):
        corpora.load(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", tokens=text.tokens)
    with pytest.raises(CorpusError, match="lacks"):
        corpora.load(tmp_path / "other.npz")


def test_every_answer_comes_once_an_epoch_in_another_order(text: Corpus) -> None:
    first, again, second = (corpora.epoch_batches(text, 5, 7, e) for e in (0, 0, 1))
    assert sorted(i for b in first for i in b) == list(range(len(text)))
    assert first == again != second


def test_generating_resumes_at_the_shard_it_lost(target: Any, tmp_path: Path) -> None:
    class Tokenizer(WordTokenizer):
        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [3 + len(w) % 40 for w in text.split()]}

    args: dict[str, Any] = {
        "answers": 10,
        "batch": 4,
        "length": 5,
        "end_tokens": [END],
        "seed": 3,
    }
    whole = generate(target, Tokenizer(), tmp_path, **args)
    kept, lost = tmp_path / "shard-00000.npz", tmp_path / "shard-00001.npz"
    before = kept.stat().st_mtime_ns
    lost.unlink()
    again = generate(target, Tokenizer(), tmp_path, **args)
    assert kept.stat().st_mtime_ns == before
    assert again.tokens.tolist() == whole.tokens.tolist()


# The split.


def test_held_out_topics_are_whole_and_disjoint() -> None:
    held = {t for t in topics() if is_held_out(t)}
    assert 10 <= len(held) <= 40
    # The split of the shipped draft: it must be the same on every machine, for ever.
    assert {"volcanoes", "chess", "DNA"} <= held
    assert "rainbows" not in held
    tokenizer = WordTokenizer()
    wanted = bank()[::7]
    tokens = [tokenizer(f"user: {p.text} assistant:")["input_ids"] for p in wanted]
    corpus = Corpus(
        prompt_tokens=np.concatenate([np.array(t) for t in tokens]),
        prompt_offsets=corpora.offsets_of([len(t) for t in tokens]),
        tokens=np.arange(len(tokens)),
        offsets=corpora.offsets_of([1] * len(tokens)),
        top_ids=np.zeros((len(tokens), 1), dtype=np.int64),
        top_p=np.ones((len(tokens), 1)),
        temperature=np.zeros(len(tokens)),
    )
    training, evaluation = split(corpus, tokenizer)
    seen = {p.topic for p in find_prompts(tokenizer, training.prompts())}
    unseen = {p.topic for p in find_prompts(tokenizer, evaluation.prompts())}
    assert seen
    assert unseen
    assert not seen & unseen
    assert unseen <= held
    assert len(training) + len(evaluation) == len(corpus)
    assert {int(t) for t in training.tokens} | {int(t) for t in evaluation.tokens} == set(
        range(len(corpus))
    )


# The loss.


def _distributions(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(7, 9, generator=generator), torch.randn(7, 6, generator=generator) * 2


def test_with_every_token_recorded_the_loss_is_the_textbook_divergence() -> None:
    teacher, logits = _distributions(0)
    head = torch.tensor([0, 2, 3, 4, 6, 8])
    p = teacher[:, head].softmax(1)
    position = torch.full((9,), -1, dtype=torch.int64)
    position[head] = torch.arange(6)
    order = torch.argsort(-p, dim=1)
    top_ids, top_p = head[order], p.gather(1, order)
    q = logits.softmax(1)
    expected = torch.nn.functional.kl_div(q.log(), p, reduction="batchmean")
    args = (logits, position, top_ids, top_p)
    assert float(losses.forward_kl(*args)) == pytest.approx(float(expected), abs=1e-5)
    alpha = torch.minimum(p, q).sum(1)
    torch.testing.assert_close(losses.overlap(*args), alpha)
    assert float(losses.total_variation(*args)) == pytest.approx(float(1 - alpha.mean()), abs=1e-6)
    torch.testing.assert_close(0.5 * (p - q).abs().sum(1), 1 - alpha)


def test_the_tokens_that_were_not_recorded_count_as_one() -> None:
    teacher, logits = _distributions(2)
    p, q = teacher.softmax(1), torch.cat([logits.softmax(1), torch.zeros(7, 3)], 1)
    position = torch.tensor([0, 1, 2, 3, 4, 5, -1, -1, -1])
    top_p, top_ids = p.topk(3, dim=1)
    expected = 0.0
    for row in range(7):
        known = [i for i in top_ids[row].tolist() if i < 6]
        pairs = [(p[row, i].item(), q[row, i].item()) for i in known]
        pairs.append((1 - sum(a for a, _ in pairs), 1 - sum(b for _, b in pairs)))
        expected += sum(a * np.log(a / b) for a, b in pairs) / 7
    assert losses.forward_kl(logits, position, top_ids, top_p).item() == pytest.approx(
        expected, abs=1e-5
    )


def test_recording_fewer_tokens_bounds_both_from_below() -> None:
    teacher, logits = _distributions(1)
    p, q = teacher.softmax(1), logits.softmax(1)
    position = torch.full((9,), -1, dtype=torch.int64)
    position[torch.arange(6)] = torch.arange(6)
    full = torch.cat([q, torch.zeros(7, 3)], 1)
    for k in (1, 2, 4):
        top_p, top_ids = p.topk(k, dim=1)
        args = (logits, position, top_ids, top_p)
        alpha = torch.minimum(p, full).sum(1)
        assert (losses.overlap(*args) <= alpha + 1e-6).all()
        assert float(losses.forward_kl(*args)) >= 0


def test_tokens_without_a_head_row_never_count_and_give_no_nan() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    position = torch.tensor([0, 1, -1])
    args = (logits, position, torch.tensor([[2, 0]]), torch.tensor([[0.9, 0.1]]))
    assert losses.overlap(*args).item() == pytest.approx(0.1)
    losses.forward_kl(*args).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


# Training.

SETTINGS = TrainSettings(
    head=40, epochs=6, batch=6, rate=3e-3, head_rate=3e-3, warm_up=2, evaluate_every=5
)


@pytest.mark.parametrize("muon_rate", [0.0, 3e-3])
def test_the_loss_falls_and_the_embedding_stays(
    target: Any, text: Corpus, tmp_path: Path, muon_rate: float
) -> None:
    draft = small_draft(target, text)
    before = score(draft, text)
    embedding = target.model.embed_tokens.weight.clone()
    settings = dataclasses.replace(SETTINGS, muon_rate=muon_rate)
    after = train(draft, text, text, settings, tmp_path)
    assert after.kl < 0.8 * before.kl
    assert after.alpha_bound > before.alpha_bound
    assert torch.equal(draft.model.embed_tokens.weight, embedding)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 5, 10, 15, 20, 24]


def test_a_killed_run_continues_as_if_it_had_not_been(
    target: Any, text: Corpus, tmp_path: Path
) -> None:
    settings = dataclasses.replace(SETTINGS, muon_rate=1e-3)
    straight = small_draft(target, text)
    train(straight, text, text, settings, tmp_path / "straight")
    train(small_draft(target, text), text, text, settings, tmp_path / "killed", stop_after=13)
    resumed = small_draft(target, text)
    train(resumed, text, text, settings, tmp_path / "killed")
    for name, weight in straight.trained().items():
        torch.testing.assert_close(resumed.trained()[name], weight, rtol=0, atol=0)


def test_a_folder_with_another_run_is_refused(target: Any, text: Corpus, tmp_path: Path) -> None:
    train(small_draft(target, text), text, text, SETTINGS, tmp_path, stop_after=1)
    other = dataclasses.replace(SETTINGS, rate=1e-2)
    with pytest.raises(ValueError, match="--run"):
        train(small_draft(target, text), text, text, other, tmp_path)


def test_the_rate_rises_stays_and_falls() -> None:
    rates = [rate_factor(s, 100, 10, 0.3, 0.02) for s in range(101)]
    assert rates[:10] == pytest.approx([(s + 1) / 10 for s in range(10)])
    assert rates[10:71] == [1.0] * 61
    assert rates[85] == pytest.approx(0.51)
    assert rates[100] == pytest.approx(0.02)


def test_a_run_may_be_made_longer_before_its_rate_falls(
    target: Any, text: Corpus, tmp_path: Path
) -> None:
    short = dataclasses.replace(SETTINGS, epochs=2, decay=0.0)
    longer = dataclasses.replace(SETTINGS, epochs=4, decay=0.25)
    straight = small_draft(target, text)
    train(straight, text, text, longer, tmp_path / "straight")
    train(small_draft(target, text), text, text, short, tmp_path / "run")
    resumed = small_draft(target, text)
    train(resumed, text, text, longer, tmp_path / "run")
    for name, weight in straight.trained().items():
        torch.testing.assert_close(resumed.trained()[name], weight, rtol=0, atol=0)


def test_orthogonalized_has_singular_values_near_one_and_the_same_singular_vectors() -> None:
    torch.manual_seed(0)
    for shape in ((12, 30), (30, 12), (16, 16)):
        matrix = torch.randn(shape)
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        values = torch.diagonal(u.T @ orthogonalized(matrix) @ v.T)
        assert ((values > 0.3) & (values < 1.3)).all()
        off = u.T @ orthogonalized(matrix) @ v.T - torch.diag(values)
        assert off.abs().max() < 1e-3


# Judging.


def test_acceptance_of_a_known_case() -> None:
    target_logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    draft_logits = torch.tensor([[0.2, 0.8]]).log()
    head = torch.tensor([0, 1])
    # min(0.5, 0.2) + min(0.3, 0.8), and nothing for the token that the head lacks.
    assert float(acceptance(target_logits, draft_logits, head, 1.0)) == pytest.approx(0.5)
    # Squared and normalised: p = (25, 9, 4)/38, q = (4, 64)/68.
    expected = min(25 / 38, 4 / 68) + min(9 / 38, 64 / 68)
    assert float(acceptance(target_logits, draft_logits, head, 0.5)) == pytest.approx(expected)
    assert float(acceptance(target_logits, draft_logits, head, 0.0)) == 0
    assert float(acceptance(target_logits, draft_logits, torch.tensor([1, 0]), 0.0)) == 1


@pytest.mark.parametrize(
    ("matches", "m", "passes"),
    [("1111", 1, 2), ("1111", 4, 1), ("0000", 4, 4), ("1101 1", 2, 2), ("0111 1", 3, 2)],
)
def test_tokens_per_pass_replays_the_rounds(matches: str, m: int, passes: int) -> None:
    row = np.array([int(c) for c in matches.replace(" ", "")])
    assert tokens_per_pass(row, m) == pytest.approx(len(row) / passes)


def test_the_target_as_its_own_draft_is_always_accepted(target: Any, text: Corpus) -> None:
    whole = start_from_target(target, (0, 1, 2), np.arange(VOCABULARY, dtype=np.int32))
    first = small_draft(target, text)
    judge = Judge(target, {"whole": whole, "first": first})
    for i in choose(text.temperature, 8):
        judge.add(text, i, "story" if i % 2 else "list")
    report = {name: result.as_json() for name, result in judge.results.items()}
    assert {cell["alpha"] for cell in report["whole"]["alpha"].values()} == {1.0}
    assert set(report["whole"]["alpha"]) == {"0.0", "0.6", "0.8", "1.0"}
    assert set(report["whole"]["alpha_by_domain"]) == {"list", "story"}
    assert report["first"]["alpha"]["1.0"]["alpha"] < 1


# The files.


def test_the_exported_draft_comes_back(target: Any, text: Corpus, tmp_path: Path) -> None:
    from safetensors import safe_open

    draft = small_draft(target, text)
    folder = tmp_path / "draft"
    save_draft(draft, folder, card="# Card\n")
    save_draft(draft, folder, card="# Card\n")  # over an older one
    back = load_draft(folder, target)
    assert back.head_ids.tolist() == draft.head_ids.tolist()
    for name, weight in draft.trained().items():
        if weight.is_floating_point():
            torch.testing.assert_close(back.trained()[name], weight.bfloat16().float())
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = set(file.keys())
        assert file.get_tensor("lm_head.weight").shape == (40, 32)
        assert file.get_tensor("head_ids").dtype == torch.int32
    assert {"model.norm.weight", "model.layers.1.self_attn.q_proj.weight"} < names
    assert not any("embed" in name for name in names)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["draft"]


def test_a_draft_of_another_target_is_refused(target: Any, text: Corpus, tmp_path: Path) -> None:
    save_draft(small_draft(target, text), tmp_path / "draft")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    config["vocab_size"] += 1
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="another target"):
        load_draft(tmp_path / "draft", target)
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        load_draft(tmp_path / "none", target)


def test_transformers_sees_the_same_draft(target: Any, text: Corpus, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    class Tokenizer:
        def save_pretrained(self, folder: Path) -> None:
            (folder / "tokenizer.json").write_text("{}")

    draft = small_draft(target, text)
    report = save_transformers(draft, Tokenizer(), tmp_path / "full", text.prompts())
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "full", dtype=torch.float32).eval()
    ids = torch.tensor([text.prompts()[0] + tuple(text.answer(0).tolist())])
    with torch.no_grad():
        logits = theirs(ids).logits[0]
        mine = draft(ids, torch.arange(ids.shape[1]))
    torch.testing.assert_close(logits[:, draft.head_ids], mine, rtol=1e-4, atol=1e-4)
    assert (draft.head_ids[mine.argmax(1)] == logits.argmax(1)).all()
    assert report["margin"] > 0
    assert report["missing_mass"] < 1e-3
    prompt = torch.tensor([text.prompts()[0]])
    settings: dict[str, Any] = {
        "attention_mask": torch.ones_like(prompt),
        "max_new_tokens": 10,
        "do_sample": False,
    }
    plain = target.generate(prompt, **settings)
    assert torch.equal(target.generate(prompt, assistant_model=theirs, **settings), plain)


def test_a_head_that_cannot_be_filled_up_is_refused(
    target: Any, text: Corpus, tmp_path: Path
) -> None:
    draft = small_draft(target, text)
    with torch.no_grad():
        # Hidden states of zero: no direction tells them apart from the origin.
        draft.model.norm.weight.zero_()
    with pytest.raises(ValueError, match="side"):
        save_transformers(draft, None, tmp_path / "full", text.prompts())
    assert not (tmp_path / "full").exists()
