#!/usr/bin/env bash
# node.sh FOLDER: installs the packages that FOLDER's lock file pins and hashes into .cache, once per content.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$(basename "$1")
target=.cache/$name-$(cat "$1"/package*.json | sha256sum | cut -c1-16)
[ -e "$target/installed" ] && exit 0
mkdir -p "$target"
cp -r "$1"/. "$target"
npm ci --prefix "$target" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
touch "$target/installed"
rm -f ".cache/$name"
ln -s "$(basename "$target")" ".cache/$name"
