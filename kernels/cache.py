"""The KV cache as the algorithm sees it: how many positions are filled, and a way back."""

from __future__ import annotations

from kernels.errors import SdError


class ContextFull(SdError):
    """More tokens than the cache, or the model, has positions for."""

    def __init__(self, length: int, count: int, capacity: int) -> None:
        super().__init__(
            "context_full",
            f"{count} more tokens do not fit: {length} of {capacity} positions are filled. "
            "Ask for fewer tokens, or make the cache larger if the model's context allows it.",
            length=length,
            count=count,
            capacity=capacity,
        )


class Cache:
    """Keys and values of the tokens read so far.

    `length` positions of `capacity` are filled. Slots past `length` are never read, so undoing a
    rejected draft is one assignment: `rollback`. Each decoder subclasses this with its own storage.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a cache needs at least one position, not {capacity}")
        self.capacity = capacity
        self.length = 0

    def rollback(self, length: int) -> None:
        """Forget everything from position `length` on. Raises ValueError if that is ahead."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} positions")
        self.length = length

    def require(self, count: int) -> None:
        """Raise ContextFull unless `count` more tokens fit."""
        if count > self.capacity - self.length:
            raise ContextFull(self.length, count, self.capacity)
