#!/usr/bin/env bash
# What only a GPU can show, in under 8 minutes on a machine that has one: builds, installs, and runs tests_cuda. It fails
# where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

for list in torch cuda python; do
    scripts/python.sh "scripts/$list-requirements.txt"
done
scripts/python-package.sh
.venv/bin/python -m pytest -q -rA --durations=5 crates/everstep-python/tests_cuda
.venv/bin/python - <<'END'
import torch
print(f"passed on {torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
END
