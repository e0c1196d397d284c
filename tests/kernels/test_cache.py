"""The cache's bookkeeping, without a model."""

from __future__ import annotations

import pickle

import pytest

from kernels.cache import Cache, ContextFull


def test_rolls_back_and_never_forward() -> None:
    cache = Cache(8)
    cache.length = 6
    cache.rollback(6)
    cache.rollback(2)
    assert cache.length == 2
    with pytest.raises(ValueError, match="from 2 to 3"):
        cache.rollback(3)
    with pytest.raises(ValueError, match="from 2 to -1"):
        cache.rollback(-1)
    assert cache.length == 2


def test_exactly_full_is_allowed_one_more_is_not() -> None:
    cache = Cache(8)
    cache.length = 5
    cache.require(3)
    with pytest.raises(ContextFull) as caught:
        cache.require(4)
    assert caught.value.code == "context_full"
    assert caught.value.detail == {"length": 5, "count": 4, "capacity": 8}


def test_a_cache_holds_something() -> None:
    with pytest.raises(ValueError):
        Cache(0)


def test_the_error_survives_a_process_boundary() -> None:
    again = pickle.loads(pickle.dumps(ContextFull(5, 4, 8)))  # noqa: S301 - our own bytes
    assert isinstance(again, ContextFull)
    assert again.detail == {"length": 5, "count": 4, "capacity": 8}
