"""The roofline of a machine that serves readers: whole passes of the model it has loaded.

Shorter than `kernels.roofline`, whose method and record it shares: one series, fewer k, and it
stops within a visit (0.3 s and a pass) when somebody needs the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernels import machine, roofline

if TYPE_CHECKING:
    from kernels.model import Decoder

CPU_TOKENS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 256)
GPU_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Bytes that the plain sum reads beside the weights; see `roofline_subjects.read_bandwidth`.
_READ = 256 << 20


def measure(
    decoder: Decoder,
    name: str,
    *,
    watch: Callable[[float], None],
    tokens: Sequence[int] | None = None,
    seconds: float = 6.0,
) -> dict[str, Any]:
    """Measure and return a record (see `kernels.roofline`).

    name: of the decoder's weights. watch: hears the share that is done, 0 to 1, several times a
    second; what it raises ends the measurement and comes through. tokens: values of k. seconds: at
    least; roofline.PATIENCE times as long where it is not quiet. Raises SdError
    `not_enough_memory`.
    """
    from kernels import memory
    from kernels import roofline_subjects as subjects

    device = decoder.device
    tokens = tokens or (GPU_TOKENS if device.startswith("cuda") else CPU_TOKENS)
    tokens = tuple(k for k in tokens if k <= decoder.context_length)
    memory.require(2 * _READ, "The measurement", device)
    watch(0.0)
    read = subjects.read_bandwidth(device, _READ)
    subject = subjects.whole_passes(decoder, name, most=max(tokens))
    try:
        timing = roofline.time_rounds(subject, tokens, seconds, watch)
    finally:
        subject.close()
    record = {
        "schema": roofline.SCHEMA,
        "created": machine.timestamp(),
        "command": "live, on the page",
        "device": subjects.describe(device),
        "versions": dict(machine.versions("torch", "numpy")),
        "cache_bytes": subjects.last_level_cache(device),
        "read": read,
        "contaminated": timing.contaminated,
        "series": [roofline.summarise(subject, timing)],
    }
    roofline.check(record)
    return record
