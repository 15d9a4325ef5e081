#!/usr/bin/env bash
# python.sh REQUIREMENTS: makes .venv if it is missing and installs pinned, hashed packages into it, once per content.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1
stamp=.venv/installed-$(basename "$requirements" .txt)-$(sha256sum "$requirements" | cut -c1-16)
[ -e "$stamp" ] && exit 0
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r "$requirements"
touch "$stamp"
