#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: runs every fuzz target (or these), two at a time, for SECONDS of fuzzing in all. A crash, a
# panic, an input that takes longer than ten seconds or too much memory fails, and names the file that does it.
#
# libFuzzer needs no nightly toolchain: what `cargo fuzz` passes to the compiler works with the pinned one. Only our own
# code counts coverage, or building would take minutes. No sanitizer, since there is no unsafe code here; overflow checks
# and debug assertions are on.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:?seconds of fuzzing in all}
shift
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target RUSTC_WRAPPER=$PWD/../scripts/rustc-with-coverage.sh
cargo build --locked --quiet --target "$host" --bins

targets=("$@")
[ ${#targets[@]} -gt 0 ] || for file in targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
share=$((seconds / ${#targets[@]}))
[ "$share" -gt 0 ] || share=1

fuzz() { # TARGET SECONDS: what it finds is kept in target/, to go on from there; reproducers are in artifacts/
    mkdir -p "target/corpus/$1" "artifacts/$1"
    local log=target/$1.log
    if "target/$host/debug/$1" "target/corpus/$1" "corpus/$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=1024 \
        -malloc_limit_mb=256 -max_len=65536 -artifact_prefix="artifacts/$1/" -print_final_stats=1 >"$log" 2>&1; then
        printf '%-12s %s runs, %s\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
            "$(grep -o 'cov: [0-9]*' "$log" | tail -1)"
    else
        tail -n 40 "$log"
        echo "fuzz target $1 failed; reproducer: $(sed -n 's/.*Test unit written to \(.*\)/fuzz\/\1/p' "$log")"
        return 1
    fi
}
export -f fuzz
export host
# Each of two at a time has its whole share, so the clock shows half of SECONDS.
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c "fuzz {} $share"
