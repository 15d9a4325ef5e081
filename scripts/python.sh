#!/usr/bin/env bash
# python.sh REQUIREMENTS [ENVIRONMENT]: makes .venv, or that environment, if it is missing and installs pinned, hashed packages
# into it, once per content.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1
environment=${2:-.venv}
stamp=$environment/installed-$(basename "$requirements" .txt)-$(sha256sum "$requirements" | cut -c1-16)
[ -e "$stamp" ] && exit 0
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r "$requirements"
touch "$stamp"
