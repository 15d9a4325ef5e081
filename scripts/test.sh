#!/usr/bin/env bash
# test.sh [--long]: everything CI runs, in stages; prints how long each took, and the runners' own closing lines.
set -euo pipefail
cd "$(dirname "$0")/.."
long=${1:-}
shares=()

stage() { # NAME BUDGET COMMAND...: budget in minutes, for the reader; it is printed, not enforced
    local name=$1 budget=$2 started=$SECONDS
    shift 2
    printf '\n=== %s\n' "$name"
    "$@"
    shares+=("$(printf '%-12s %3dm %02ds of %s' "$name" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)) "$budget")")
}

# The proofs (model and simulation) have a share of their own; every other test of the workspace is in the Rust share.
proofs=(--test model --test simulation)
others=$(find tests/tests -mindepth 1 -maxdepth 1 -type d -printf '--test %f\n' | grep -vE ' (model|simulation)$' | sort)
rust_tests() {
    cargo test --locked --no-fail-fast --workspace --exclude everstep-tests
    # shellcheck disable=SC2086 # one word per option and name
    cargo test --locked --no-fail-fast -p everstep-tests --lib $others
}
proofs() { cargo test --locked --no-fail-fast -p everstep-tests "${proofs[@]}"; }
long_tests() { EVERSTEP_SEEDS=100000 cargo test --locked --no-fail-fast -p everstep-tests -- --include-ignored; }

stage tools 2m scripts/install-test-tools.sh
stage build 14m cargo build --workspace --all-targets --locked --quiet
stage lint "build's" scripts/lint.sh
stage rust 7m rust_tests
stage proofs 5m proofs
stage demo 1m scripts/demo.sh
[ "$long" = --long ] && stage long "no limit" long_tests

printf '\n=== shares\n'
printf '%s\n' "${shares[@]}"
