"""Where races come from: the seam between the server and an engine.

The server, the figure and the recorder know nothing of an engine but this: a source says which
pairs it offers, gets one ready, and yields the events of a race (docs/trace.md). The engine in
this repository is one source, servers of the owner's are another (``app/openai_source.py``), a
cluster a third (``app/ray_source.py``); yet another is another class with the same three methods,
named in ``SD_SOURCE=module:Class``. A source lives in a process of its own (``app/engine.py``), so
it may block. docs/engines.md describes the seam for whoever writes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from kernels import pairs
from kernels.errors import SdError
from kernels.pairs import Pair
from kernels.settings import Settings

Event = dict[str, Any]
#: progress(stage, done, total): what the source is busy with; see kernels/storage.py for the
#: stages.
Progress = Callable[[str, int, int], None]

CUSTOM = "custom"
#: What can be measured on the page (`Measuring`).
MEASURES = ("roofline", "mask")
#: Longest sentence of figure `mask`, in tokens: nine passes read it, within about a second.
MASK_TOKENS = 64


class Source(Protocol):
    """Something that can run races. Made without arguments; making one must be quick.

    A source whose races do not run in this very process has an attribute ``at_once`` as well: how
    many of them it runs side by side, each to its end. Without it races share one device in turns.
    """

    def describe(self) -> list[dict[str, Any]]:
        """Return the pairs on offer, the default first, before anything is loaded.

        Each is ``{"name", "title", "languages": ["en"], "drafters": ["both", "lookup"],
        "download": bytes, "memory": bytes}``, and ``"measures"``: what of `Measuring` can be done
        with it; absent for nothing.
        """
        ...

    def prepare(self, pair: str, progress: Progress) -> None:
        """Get a pair ready to race, reporting progress. Called before each race; quick when it is.

        Raises:
            SdError: it cannot be made ready; the code and detail reach the reader.
        """
        ...

    def run(self, pair: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """Yield the events of one race, ``start`` first and ``end`` last.

        ``cancelled`` is asked before each pass; once it is true the race ends within a pass.

        Raises:
            SdError: the race cannot start or go on.
        """
        ...


@runtime_checkable
class Measuring(Protocol):
    """A source that also measures: its pairs say what under ``"measures"``."""

    def measure(
        self, what: str, options: dict[str, Any], watch: Callable[[float], None]
    ) -> dict[str, Any]:
        """Return a record made with the pair that was prepared last.

        ``what``: "roofline" (kernels/roofline.py), no options; "mask" (kernels/mask.py), options
        ``{"sentence"}``. ``watch`` is told several times a second what share is done, 0 to 1; it
        raises when somebody else needs the device, and that must come through.

        Raises:
            SdError: it cannot be measured; the code and detail reach the reader.
        """
        ...


class KernelSource:
    """The engine of this repository, one pair in memory at a time."""

    def __init__(self) -> None:
        names = [n.strip() for n in os.environ.get("SD_PAIRS", "").split(",") if n.strip()]
        self._presets = {name: pairs.preset(name) for name in names}
        self._target, self._draft = os.environ.get("SD_TARGET"), os.environ.get("SD_DRAFT")
        if not names and not self._target:
            first = next(iter(pairs.presets().values()))
            self._presets = {first.name: first}
        self._loaded: Pair | None = None

    def describe(self) -> list[dict[str, Any]]:
        """Return the presets that the owner offers, and the custom pair if there is one."""
        offered = [
            {
                "name": preset.name,
                "title": preset.title,
                "languages": list(preset.languages),
                "drafters": _drafters(preset.has_draft),
                "download": preset.download,
                "memory": preset.memory,
                "measures": list(MEASURES),
            }
            for preset in self._presets.values()
        ]
        if self._target:
            custom = {
                "name": CUSTOM,
                "title": " + ".join(filter(None, (self._target, self._draft))),
                "languages": ["zh", "en"],
                "drafters": _drafters(bool(self._draft)),
                "download": 0,
                "memory": 0,
                "measures": list(MEASURES),
            }
            offered.insert(0, custom)
        return offered

    def prepare(self, pair: str, progress: Progress) -> None:
        """Load the pair, after letting go of another one: two may not fit."""
        if self._loaded is not None and self._loaded.name == pair:
            return
        if pair not in {*self._presets, *([CUSTOM] if self._target else [])}:
            raise SdError("unknown_pair", f"This server does not offer {pair!r}.", name=pair)
        self._loaded = None
        device = os.environ.get("SD_DEVICE", "auto")
        precision = os.environ.get("SD_PRECISION", "auto")
        self._loaded = pairs.load_pair(
            pair,
            target=self._target if pair == CUSTOM else None,
            draft=self._draft if pair == CUSTOM else None,
            progress=progress,
            device=device,
            precision=precision,
        )

    def run(self, pair: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """Race on the loaded pair."""
        from kernels.race import race

        assert self._loaded is not None
        assert self._loaded.name == pair
        return race(self._loaded, settings, cancelled=cancelled, command="live, on the page")

    def measure(
        self, what: str, options: dict[str, Any], watch: Callable[[float], None]
    ) -> dict[str, Any]:
        """Measure with the loaded target."""
        assert self._loaded is not None
        target, name = self._loaded.target, self._loaded.target_id
        if what == "roofline":
            from kernels import roofline_live

            return roofline_live.measure(target, name, watch=watch)
        from kernels import mask

        return mask.record(
            target,
            None,
            self._loaded.tokenizer,
            source=name,
            sentence=options["sentence"],
            command="live, on the page",
            most=MASK_TOKENS,
            watch=watch,
        )


def _drafters(model: bool) -> list[str]:
    """Return what the reader may choose from; the first one is the default."""
    return ["both", "model", "lookup"] if model else ["lookup"]


#: Settings that choose a source by being there, and what they choose.
CHOSEN_BY = {
    "SD_RAY": "app.ray_source:RaySource",
    "SD_PLAIN_URL": "app.openai_source:OpenAISource",
    "SD_SPECULATIVE_URL": "app.openai_source:OpenAISource",
}


def check() -> None:
    """Look at the owner's settings for another source, without making the default one.

    Raises:
        ValueError: a setting is wrong; the message says which.
    """
    if any(os.environ.get(name) for name in CHOSEN_BY) and not os.environ.get("SD_SOURCE"):
        try:
            source()
        except SdError as error:
            raise ValueError(str(error)) from error


def source() -> Source:
    """Make the source that the owner's settings name: the engine of this repository, if none."""
    implied = (place for name, place in CHOSEN_BY.items() if os.environ.get(name))
    place = os.environ.get("SD_SOURCE") or next(implied, "app.sources:KernelSource")
    module, _, name = place.partition(":")
    made: Source = getattr(import_module(module), name)()
    return made
