"""The ideal roofline against hand-computed values and closed forms."""

import pytest

from kernels.hardware import KV_ELEMENT, Hardware, forward, knee, presets, scaled, shapes, sources

H100, DENSE = presets()["h100-sxm"], shapes()["dense-70b"]


def test_the_articles_example() -> None:
    one = forward(H100, DENSE, 1)
    assert one.weight_bytes == 140e9
    assert one.read == pytest.approx(140e9 / 3.35e12) == pytest.approx(0.04179, rel=1e-3)
    assert one.compute == pytest.approx(0.1415e-3, rel=1e-3)
    assert one.time == one.read
    assert knee(H100, DENSE) == pytest.approx(295.22, abs=0.01)


def test_the_knee_does_not_depend_on_the_size_of_a_dense_model() -> None:
    assert knee(H100, DENSE) == knee(H100, shapes()["smollm2-135m"])


@pytest.mark.parametrize(
    ("precision", "expected"), [("bf16", 295.2), ("int8", 147.6), ("int4", 73.8)]
)
def test_smaller_weights_move_the_knee(precision: str, expected: float) -> None:
    assert knee(H100, DENSE, precision=precision) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("context", [0, 4096])
@pytest.mark.parametrize("model", ["dense-70b", "qwen3-30b-a3b"])
def test_at_the_knee_both_take_equally_long(model: str, context: int, batch: int) -> None:
    bend = knee(H100, shapes()[model], batch=batch, context=context)
    if bend == float("inf"):
        # Reading grows with every sequence and computing never catches up.
        far = forward(H100, shapes()[model], 1e7, batch=batch, context=context)
        assert far.compute < far.read
        return
    here = forward(H100, shapes()[model], bend, batch=batch, context=context)
    assert here.compute == pytest.approx(here.read, rel=1e-6)


def test_kv_cache_of_a_70b_llama() -> None:
    # 2 (K and V) × 2 bytes × 8 heads × 128 × 80 layers, from the published shape
    assert DENSE.kv_per_token() == 2 * KV_ELEMENT * 8 * 128 * 80 == 327_680
    assert forward(H100, DENSE, 1, context=32 * 1024).time == pytest.approx(45.0e-3, rel=1e-3)
    assert forward(H100, DENSE, 1, context=128 * 1024).time == pytest.approx(54.6e-3, rel=1e-3)


def test_attention_counts_two_products() -> None:
    got = forward(H100, DENSE, 3, context=1000, batch=2).attention_flops
    # scores and mixing: each heads × head_dim multiply-adds for every (query, key) pair and layer
    assert got == 2 * 2 * (64 * 128) * 80 * (3 * 1000) * 2


def test_mixture_reads_what_one_token_uses_and_at_last_everything() -> None:
    moe = shapes()["mixtral-8x7b"]
    assert moe.read(1) == pytest.approx(moe.active)
    assert moe.read(10_000) == pytest.approx(moe.parameters)
    # Two of eight experts a token: after two tokens 8·(1 − 0.75²) = 3.5 in expectation.
    expert = (46.7e9 - 12.9e9) / 6
    assert moe.read(2) == pytest.approx(12.9e9 - 2 * expert + 3.5 * expert)


def test_shares_scale_the_device() -> None:
    half = scaled(H100, flops_share=0.5, bandwidth_share=0.25)
    assert forward(half, DENSE, 1).read == pytest.approx(4 * forward(H100, DENSE, 1).read)
    assert knee(half, DENSE) == pytest.approx(2 * knee(H100, DENSE))


def test_presets_are_sound() -> None:
    for key, device in presets().items():
        assert isinstance(device, Hardware)
        assert device.source in sources(), key
        # Every known accelerator lies here; a sparse or mistyped figure would not.
        assert 25 < device.flops / device.bandwidth < 600, key
        assert set(device.unconfirmed) <= {"flops", "bandwidth", "memory", "cache"}
    assert presets()["h100-sxm"].flops == 989e12  # not 1979e12, which is the 2:4-sparse figure


def test_a_cache_is_far_smaller_than_the_memory_and_kept_when_scaled() -> None:
    known = [device for device in presets().values() if device.cache]
    assert len(known) >= 16
    assert all(1e6 <= device.cache <= 0.01 * device.memory for device in known)
    assert scaled(H100, flops_share=0.5, bandwidth_share=0.5).cache == H100.cache == 50e6
