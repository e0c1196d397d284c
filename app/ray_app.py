"""The engine on a Ray cluster: ``serve run --name race app.ray_app:application`` (docs/engines.md).

A replica is the engine of this repository on one device: a GPU, or some cores of its own. It runs
one race at a time, to its end, because two at once would be in each other's clocks; what waits,
waits in Ray's queue, whose length makes it start more replicas. The page server is
``app/ray_source.py``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.ray_settings import APPLICATION, DEPLOYMENT, RaySettings, claim_cores
from app.sources import KernelSource, source
from kernels.errors import SdError
from kernels.settings import Settings


class Replica:
    """One device's engine. Cores that it claims are its own until its process ends."""

    def __init__(self, cores: int) -> None:
        self.cores = claim_cores(cores) if cores else []
        # For page servers: a replica that heeded it would ask the cluster, that is itself.
        os.environ.pop("SD_RAY", None)
        self.source = source()
        self.thread = ThreadPoolExecutor(1, "race")
        if isinstance(self.source, KernelSource):  # ready before the first race
            self._prepare(self.source.describe()[0]["name"])

    def _prepare(self, pair: str) -> None:
        self.source.prepare(pair, lambda *_: None)

    async def race(self, pair: str, settings: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield a race's events, each when it happens; a known fault is the last of them."""
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self.thread, self._prepare, pair)
            events = self.source.run(pair, Settings.from_dict(settings), stop.is_set)
            while True:
                event = await loop.run_in_executor(self.thread, next, events, None)
                if event is None:
                    return
                yield event
        except SdError as error:
            yield error.as_event()
        finally:
            stop.set()  # a cancelled race ends within a pass


def build(settings: RaySettings, gpus: bool) -> Any:
    """Return the application for a cluster with or without GPUs."""
    from ray import serve  # here, so that the module can be read without Ray

    options: dict[str, Any] = {"max_ongoing_requests": 1, "name": DEPLOYMENT}
    options["ray_actor_options"] = {
        "num_cpus": settings.cpus,
        "num_gpus": (1 if settings.gpus is None else settings.gpus) if gpus else 0,
    }
    if settings.fewest == settings.most:
        options["num_replicas"] = settings.fewest
    else:
        options["autoscaling_config"] = {
            "min_replicas": settings.fewest,
            "max_replicas": settings.most,
            "target_ongoing_requests": settings.queue,
            "upscale_delay_s": 2.0,
            "downscale_delay_s": 120.0,
        }
    # Cores are divided among replicas only where cores are the device.
    cores = 0 if gpus else int(settings.cpus)
    return serve.deployment(Replica).options(**options).bind(cores)


def application(_: dict[str, str]) -> Any:
    """What ``serve run`` calls."""
    import ray

    ray.init(address="auto", ignore_reinit_error=True)
    return build(RaySettings.of(os.environ), gpus=ray.cluster_resources().get("GPU", 0) > 0)


__all__ = ["APPLICATION", "application", "build"]
