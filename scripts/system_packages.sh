#!/usr/bin/env bash
# Installs the operating-system programs that some tests drive, when they are missing and we may.
# A test that needs one of them fails with its name when it is still missing afterwards.
set -uo pipefail

declare -A package_of=([pgbouncer]=pgbouncer [chromium]=chromium [chromedriver]=chromium-driver)
missing=()
for program in "${!package_of[@]}"; do
    command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || missing+=("${package_of[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo --non-interactive true 2>/dev/null; then
        as_root=(sudo --non-interactive)
    else
        echo "system packages: cannot install ${missing[*]} without root; install them yourself" >&2
        exit 0
    fi
fi
if ! command -v apt-get >/dev/null; then
    echo "system packages: no apt-get here; install ${missing[*]} yourself" >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3; do
    if timeout 300 "${as_root[@]}" apt-get update -qq </dev/null &&
        timeout 300 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null; then
        exit 0
    fi
    echo "system packages: attempt $attempt to install ${missing[*]} failed" >&2
done
exit 0
