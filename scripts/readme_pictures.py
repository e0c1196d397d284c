"""Draw the picture at the head of the README: ``python scripts/readme_pictures.py``.

A recorded race of figure 5, as `python -m figures export` draws it, in both themes: the upper part
of the figure, down to the clock. Needs the browser of the tests.
"""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from figures.export.still import still

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
RECORDING = "list"
WIDTH, HEIGHT, SCALE = 820, 616, 1.5
LARGEST = 100_000  # bytes: part of every clone


def main() -> None:
    """Write one file a theme; 128 colours are enough for it."""
    FOLDER.mkdir(exist_ok=True)
    for theme in ("light", "dark"):
        drawn = still(
            "race",
            format="png",
            lang="en",
            theme=theme,
            state={"recording": RECORDING},
            width=WIDTH,
            scale=SCALE,
        )
        picture = Image.open(io.BytesIO(drawn)).convert("RGB")
        picture = picture.crop((0, 0, picture.width, round(HEIGHT * SCALE)))
        packed = io.BytesIO()
        picture.quantize(128, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
        if packed.tell() > LARGEST:
            raise SystemExit(f"{packed.tell()} bytes, {LARGEST} at most: draw it smaller")
        (FOLDER / f"race-{theme}.png").write_bytes(packed.getvalue())
        print(f"race-{theme}.png  {packed.tell()} bytes")


if __name__ == "__main__":
    main()
