"""One matrix product with the decoder's own inner loop, for measuring a machine.

The call runs on the calling thread and holds no lock meanwhile, so threads of Python can stream
different parts of a matrix at the same time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernels.native.decoder import arena
from kernels.native.library import TYPES, library


class PackedMatrix:
    """Weights (N, K) in the decoder's layout.

    Args:
        weights: (N, K) float32; N must be a multiple of `panel_width()`.
        precision: "bf16" (rounded to nearest) or "fp32".

    Raises:
        ValueError: N is no multiple of the panel width.
        NativeUnavailable: no compiler on this machine.
    """

    def __init__(self, weights: NDArray[np.float32], precision: str = "bf16") -> None:
        self._library = library()
        self.rows, self.columns = weights.shape
        width = panel_width()
        if self.rows % width:
            raise ValueError(f"{self.rows} rows are no multiple of {width}")
        self._panels, self._type = self.rows // width, TYPES[precision]
        self.bytes = self.rows * self.columns * (2 if precision == "bf16" else 4)
        self._memory = arena(self.bytes)
        source = np.ascontiguousarray(weights, np.float32)
        self._library.sd_pack(
            self._memory.ctypes.data,
            self._type,
            source.ctypes.data,
            TYPES["fp32"],
            self.rows,
            self.columns,
            0,
            1,
        )

    def times(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write x · weightsᵀ.

        Args:
            x: (k, K) float32, contiguous.
            out: (k, N) float32, contiguous.
        """
        self._library.sd_product(
            self._type,
            self._memory.ctypes.data,
            self._panels,
            x.ctypes.data,
            x.shape[0],
            self.columns,
            out.ctypes.data,
        )


def panel_width() -> int:
    """Return how many neighbouring outputs the layout keeps together on this machine."""
    return int(library().sd_panel_width())
