#!/usr/bin/env bash
# The Python package as one wheel for CPython 3.11 and all later ones, optimised; into target/wheels.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/python.sh scripts/wheel-requirements.txt
.venv/bin/maturin build --release --locked --strip --manifest-path crates/everstep-python/Cargo.toml --out target/wheels
