"""llama.cpp's own HTTP server, from the prebuilt ``xllamacpp`` wheel: no compiler, no download.

Runs in an environment of its own that has xllamacpp in it, not in the project's (docs/engines.md):

    PYTHON scripts/llama_server.py MODEL.gguf --port 8080 [--ngram 3 --m 4] [--threads 2]

A machine that has llama.cpp's `llama-server` needs none of this.
"""

from __future__ import annotations

import argparse
import signal


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument(
        "--ngram", type=int, default=0, help="speculate: look up the last n tokens in the text"
    )
    parser.add_argument("--m", type=int, default=4, help="drafted tokens a round")
    options = parser.parse_args()

    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = options.model
    given.model_alias = {options.model.rsplit("/", 1)[-1].removesuffix(".gguf")}
    given.port = options.port
    given.n_ctx = options.context
    given.n_parallel = 1
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = options.threads
    given.endpoint_metrics = True
    if options.ngram:
        given.speculative.types = [
            xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
        ]
        given.speculative.ngram_simple.size_n = options.ngram
        given.speculative.ngram_simple.size_m = options.m
    server = xllamacpp.Server(given)
    print(f"listening at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
