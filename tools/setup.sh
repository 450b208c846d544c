#!/usr/bin/env bash
# Install what is missing: the Arm toolchain and QEMU through apt, the Python packages into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need gcc gcc
need make make
need cmake cmake
need ninja ninja-build
need arm-none-eabi-gcc gcc-arm-none-eabi
need qemu-system-arm qemu-system-arm
need g++ g++
need cppcheck cppcheck
if command -v arm-none-eabi-gcc >/dev/null 2>&1; then
    [ -f "$(arm-none-eabi-gcc -print-file-name=nano.specs)" ] || missing+=(libnewlib-arm-none-eabi)
else
    missing+=(libnewlib-arm-none-eabi)
fi
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "setup: poetgen needs Python 3.11 or newer; $python is $("$python" --version 2>&1 || echo missing)." >&2
    echo "       Install it, or name one: make PYTHON=/path/to/python3.11 ..." >&2
    exit 5
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

if [ "${#missing[@]}" -gt 0 ]; then
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if sudo -n true 2>/dev/null; then sudo="sudo -n"; else sudo=no; fi
    fi
    if ! command -v apt-get >/dev/null 2>&1 || [ "$sudo" = no ]; then
        echo "setup: missing: ${missing[*]}" >&2
        echo "       Install them with your package manager; on Debian or Ubuntu:" >&2
        echo "       sudo apt-get install ${missing[*]}" >&2
        exit 5
    fi
    echo "setup: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq </dev/null
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
fi

if [ ! -x .venv/bin/python ]; then
    echo "setup: creating .venv" >&2
    "$python" -m venv .venv
fi
echo "setup: installing Python packages into .venv" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip </dev/null
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' </dev/null
touch .venv/poetgen-ready
