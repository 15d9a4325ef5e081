#!/usr/bin/env bash
# Builds the Python package where it lies, so that `.venv/bin/python -c "import everstep"` works: with the same features of
# all dependencies as every other build, so none is built twice.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --workspace --locked --quiet
package=crates/everstep-python/python
built=target/debug/lib_everstep.so
wanted=$package/everstep/_everstep.abi3.so
# A new file under the same name: a process that has the old one loaded keeps it.
if ! cmp --silent "$built" "$wanted"; then
    cp "$built" "$wanted.new"
    mv "$wanted.new" "$wanted"
fi
[ -x .venv/bin/python ] || python3 -m venv .venv
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$PWD/$package" >"$site/everstep.pth"
