#!/usr/bin/env bash
# Makes .venv in the checkout and installs the package with everything its tests and examples need.
# Safe to repeat; `make setup` runs it only when pyproject.toml, constraints.txt or this file changed.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
attempts=3
limit_s=900 # installs sometimes hang for minutes: each gets a limit and is tried again

usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: no Python 3.11 to 3.13 with venv found; set PYTHON=/path/to/python3" >&2
    exit 2
}

again() {
    local attempt
    for attempt in $(seq "$attempts"); do
        if timeout --kill-after=10 "$limit_s" "$@"; then
            return
        fi
        echo "setup: attempt $attempt of $attempts failed or took over ${limit_s} s: $*" >&2
        sleep "$attempt"
    done
    exit 1
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input --timeout 30 --retries 3 -qq)
again "${pip[@]}" install --upgrade pip
again "${pip[@]}" install --no-compile --constraint constraints.txt --editable '.[torch,s3,dev]'
# On all cores, which pip does on one. Packages also hold files that are no Python of this version: no reason to stop.
"$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" || true
