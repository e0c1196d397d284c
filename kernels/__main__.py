"""`python -m kernels COMMAND …`: each command is loaded only when asked for."""

from __future__ import annotations

import sys
from importlib import import_module

from kernels.errors import SdError

#: name → (what it does, "module:function"); the function takes the remaining arguments and returns
#: the exit status.
COMMANDS = {
    "race": ("run plain and speculative decoding side by side", "kernels.cli_race:main"),
    "bench": ("measure the engine and print one JSON line", "kernels.bench:main"),
    "weights": ("fetch and prepare the models", "kernels.cli_weights:main"),
    "ngrams": ("count the table behind look-up", "kernels.ngrams:main"),
    "distill": ("make a draft model out of a target", "kernels.distill:main"),
    "roofline": ("measure this machine's roofline", "kernels.roofline:main"),
    "lossless": ("count sampled outcomes beside exact probabilities", "kernels.lossless:main"),
    "mask": ("compare one pass over m + 1 tokens with m + 1 passes", "kernels.mask:main"),
    "tiles": ("record a kernel's tile schedule", "kernels.tiles:main"),
    "gpu-check": ("measure and check everything that needs a GPU", "kernels.gpu.check:main"),
}


def main(argv: list[str]) -> int:
    """Run one command; its exit status (2 for wrong usage, 1 for an explained error)."""
    if not argv or argv[0] not in COMMANDS:
        wanted_help = argv[:1] in (["-h"], ["--help"])
        print(_usage(), file=sys.stdout if wanted_help else sys.stderr)
        return 0 if wanted_help else 2
    module, function = COMMANDS[argv[0]][1].split(":")
    try:
        return int(getattr(import_module(module), function)(argv[1:]))
    except SdError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _usage() -> str:
    lines = [f"  {name:<10}{what}" for name, (what, _) in COMMANDS.items()]
    return "\n".join(["usage: python -m kernels COMMAND [--help] …", "", "commands:", *lines])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
