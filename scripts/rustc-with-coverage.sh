#!/usr/bin/env bash
# rustc-with-coverage.sh RUSTC ARGUMENTS...: for RUSTC_WRAPPER; crates of ours are built so that libFuzzer sees their paths.
set -euo pipefail
case " $* " in
*" --crate-name everstep_"*)
    set -- "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares ;;
esac
exec "$@"
