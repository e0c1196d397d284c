#!/bin/sh
# Create .venv if need be, install this project into it with the pinned versions, write a stamp.
#
#   scripts/install.sh STAMP [dev]
#
# Called by the Makefile, once for each content of pyproject.toml and constraints.txt: the stamp's
# name carries their checksum, so a second `make serve` does not come here at all.
# PYTHON chooses the interpreter, TORCH_INDEX a package index to take torch from.
set -eu

stamp=$1
extra=${2:+[$2]}
venv=.venv
oldest=3.11

say() { printf '%s\n' "$*" >&2; }

works() { # works PYTHON: it starts and is new enough (a pyenv shim exists but may not start)
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        works "$PYTHON" && { echo "$PYTHON"; return; }
        say "PYTHON=$PYTHON does not start, or is older than Python $oldest."
        exit 1
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
        works "$candidate" && { echo "$candidate"; return; }
    done
    say "No Python $oldest or newer found. Install one (python.org, your package manager, or"
    say "'uv python install 3.13'), or name it: make serve PYTHON=/path/to/python3"
    exit 1
}

if ! works "$venv/bin/python"; then
    python=$(find_python)
    say "Creating $venv with $("$python" --version)"
    if ! "$python" -m venv --clear "$venv"; then
        say "$python cannot create a virtual environment. On Debian and Ubuntu it lacks a package:"
        say "apt-get install python3-venv"
        exit 1
    fi
fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$venv/bin/python" -m ensurepip --upgrade # an environment made by uv, or cut short
fi

pip() { "$venv/bin/python" -m pip install --disable-pip-version-check --no-input "$@"; }

has_torch() { "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'; }
if [ -n "${TORCH_INDEX:-}" ]; then
    # Only torch itself from there; what it depends on comes with everything else below.
    pip --index-url "$TORCH_INDEX" --no-deps --constraint constraints.txt torch
elif ! has_torch && [ "$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null 2>&1; then
    say "No NVIDIA driver here: a CPU-only torch is enough and far smaller than the default one."
    say "If a long download starts now, stop it and see 'CPU only' in README.md."
fi
pip --constraint constraints.txt --editable ".$extra"

rm -f "$venv"/.installed-* # of other contents
case $extra in
    '') : >"$stamp" ;;
    *) : >"$stamp"; : >"$(printf %s "$stamp" | sed 's/-dev-/-run-/')" ;; # dev includes run
esac
