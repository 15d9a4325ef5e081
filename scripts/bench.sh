#!/usr/bin/env bash
# bench.sh [ckpt-bench options]: figures with references taken in the same run; on the disk of the temporary folder.
# Built like the tests (optimised, with overflow checks), so that it needs no second build of every dependency.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --workspace --bins --locked --quiet
target/debug/ckpt-bench "${TMPDIR:-/tmp}" "$@"
printf '\nsaves in the background of a training in Python\n'
scripts/python.sh scripts/torch-requirements.txt
scripts/python-package.sh
.venv/bin/python crates/everstep-python/benchmarks/background.py "${TMPDIR:-/tmp}"
printf '\nsaves in the background through torch.distributed.checkpoint\n'
.venv/bin/python crates/everstep-python/benchmarks/dcp.py "${TMPDIR:-/tmp}"
printf '\nmetadata of large jobs (EVERSTEP_RANKS="232 1856" chooses)\n'
cargo test --workspace --test scale --locked --quiet -- --ignored --nocapture
