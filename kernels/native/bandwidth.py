"""How fast this machine's cores together read memory: the limit that decoding is measured against.

The reads go through the decoder's own threads, four streams a thread, because that is the fastest
way of reading that we found (a single stream a thread reached two thirds of it): a share of this
figure flatters nobody.
"""

from __future__ import annotations

import time

import numpy as np

from kernels.native.decoder import arena
from kernels.native.library import default_threads, library, pool

# Far more than any last-level cache of a machine whose memory one would call slow.
_BYTES = 512 << 20


def read_bandwidth(
    seconds: float = 1.0, *, threads: int | None = None, size: int = _BYTES
) -> float:
    """Bytes/s, the best of as many passes over `size` bytes as `seconds` allow (at least three).

    threads: None for the decoder's default. Raises NativeUnavailable without a compiler.
    """
    lib, handle = library(), pool(threads or default_threads())
    memory = arena(size)
    memory.view(np.uint64)[:] = np.arange(
        size // 8, dtype=np.uint64
    )  # real pages, not the zero one
    best, passes, end = float("inf"), 0, time.perf_counter() + seconds
    while passes < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        lib.sd_read(handle, memory.ctypes.data, size)
        best = min(best, time.perf_counter() - start)
        passes += 1
    return size / best
