"""Fixtures that several files of this folder use."""

from tests.kernels.weights_world import package, real_client, world

__all__ = ["package", "real_client", "world"]
