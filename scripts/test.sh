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
# Always the whole workspace, with the targets named: another choice of packages means other features of the shared
# dependencies, and so a second build of them.
named_tests() {
    local test
    for test in crates/*/tests/* tools/ckpt-*/tests/* tests/tests/*; do
        [ "$test" = tests/tests/simulation ] && continue
        if [ -e "$test/main.rs" ] || [[ $test == *.rs && -e $test ]]; then
            printf -- '--test %s\n' "$(basename "$test" .rs)"
        fi
    done
}
rust_tests() {
    # shellcheck disable=SC2046 # one word per option and name
    cargo test --workspace --locked --no-fail-fast --lib --bins --examples $(named_tests)
    cargo test --workspace --locked --no-fail-fast --doc
}
proofs() { cargo test --workspace --locked --no-fail-fast --test model --test simulation; }
python_tests() {
    scripts/python.sh scripts/torch-requirements.txt
    scripts/python.sh scripts/python-requirements.txt
    scripts/python.sh scripts/frameworks-requirements.txt
    scripts/python-package.sh
    .venv/bin/python -m pytest -q crates/everstep-python/tests
}
# The second reader, alone and beside ckpt-inspect.
reader_tests() {
    PYTHONPATH=tools/reader-py .venv/bin/python -m unittest discover -s tools/reader-py/tests
    PYTHONPATH=tools/reader-py .venv/bin/python tools/reader-py/tests/agreement.py target/debug/ckpt-inspect
}
# torch.distributed.checkpoint as it was in the oldest version that is supported.
old_torch_tests() {
    local environment=target/torch-2.7
    scripts/python.sh scripts/torch-2.7-requirements.txt "$environment"
    scripts/python.sh scripts/python-requirements.txt "$environment"
    PYTHONPATH=crates/everstep-python/python "$environment/bin/python" -m pytest -q crates/everstep-python/tests/test_dcp.py
}
long_fuzz() { scripts/fuzz.sh 3600; }
long_tests() { EVERSTEP_SEEDS=100000 cargo test --workspace --locked --no-fail-fast -- --include-ignored; }

stage tools 2m scripts/install-test-tools.sh
stage build 14m cargo build --workspace --all-targets --locked --quiet
stage lint "build's" scripts/lint.sh
stage rust 7m rust_tests
stage reader 2m reader_tests
stage python 5m python_tests
stage proofs 5m proofs
stage fuzz 2m scripts/fuzz.sh 60
stage demo 2m scripts/demo.sh
if [ "$long" = --long ]; then
    stage old-torch 15m old_torch_tests
    stage long-fuzz 1h long_fuzz
    stage long "no limit" long_tests
fi

printf '\n=== shares\n'
printf '%s\n' "${shares[@]}"
